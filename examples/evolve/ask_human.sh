#!/bin/sh
# A proposer for flashcore evolve that asks the person at the terminal: opens the best program in an
# editor, and asks for a name and a thought. docs/evolve.md has the protocol.
#
#   flashcore evolve run DIR --proposer examples/evolve/ask_human.sh --evaluations 1
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
terminal=${EVOLVE_TERMINAL:-/dev/tty}

cat >"$folder/request.json"
python3 - "$folder" <<'PYTHON'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
request = json.loads((folder / "request.json").read_text())
parent = request["parents"][0]
suffix = {"c": ".c", "c++": ".cpp", "cuda": ".cu"}[request["task"]["language"]]
(folder / "name").write_text("program" + suffix)
(folder / ("program" + suffix)).write_text(parent["source"])
(folder / "question").write_text(
    f"Attempt {request['attempt']}, {request['operator']} of attempt {parent['id']} "
    f"(score {parent['score']:.3g}, parameters {json.dumps(parent['parameters'])}).\n")
PYTHON

{
  cat "$folder/question"
  printf 'Edit the program, then save it and leave the editor.\n'
} >&2
program=$folder/$(cat "$folder/name")
${VISUAL:-${EDITOR:-vi}} "$program" <"$terminal" >&2
exec 3<"$terminal"
printf 'A name for it: ' >&2
read -r name <&3
printf 'Why will it be faster? ' >&2
read -r thought <&3

python3 - "$program" "$name" "$thought" <<'PYTHON'
import json, pathlib, sys
print(json.dumps({"version": 1, "source": pathlib.Path(sys.argv[1]).read_text(),
                  "name": sys.argv[2], "thought": sys.argv[3]}))
PYTHON
