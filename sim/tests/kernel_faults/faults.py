"""The faults that inject.py injects, by kernel."""
import backward
import convert
import decode
import forward_fp8
import forward_sm80
import forward_sm90
import ladder

FAULTS = [*forward_sm90.FAULTS, *forward_sm80.FAULTS, *forward_fp8.FAULTS, *decode.FAULTS,
          *backward.FAULTS, *convert.FAULTS, *ladder.FAULTS]
