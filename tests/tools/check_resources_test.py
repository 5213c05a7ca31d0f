"""tools/check_resources.py and tools/compile_cuda.py on reports that must and must not pass."""
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_resources  # noqa: E402
import compile_cuda  # noqa: E402
from device_code import container, elf, entry  # noqa: E402
from kernel_folders import Folder, folders  # noqa: E402
from reporting.evidence import Failure  # noqa: E402

NAME = "_ZN9flashcore12_GLOBAL__N_112small_kernelILi64EEEvv"


def report(registers=96, stores=0, loads=0, stack=0, target="sm_80", static="", extra=""):
    return (f"ptxas info    : 0 bytes gmem\n"
            f"ptxas info    : Compiling entry function '{NAME}' for '{target}'\n"
            f"ptxas info    : Function properties for {NAME}\n"
            f"    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads\n"
            f"ptxas info    : Used {registers} registers, used 1 barriers{static}\n{extra}")


BUDGETS = [Folder("ladder", "ladder", {}, 1,
                  [{"files": "*", "targets": ["sm_80"], "registers": 128, "spills": 0, "stack": 0,
                    "shared": 101376}])]


CODE = {"nvcc": "13.0.88", "functions": {target: {NAME: "0" * 16} for target in ("sm_80", "sm_89")}}


def problems(text, dynamic=1024, target="sm_80", code=None):
    launches = {} if dynamic is None else {(target, NAME): dynamic}
    return check_resources.check({"ladder/04": text}, launches, BUDGETS, code or CODE)[1]


class Check(unittest.TestCase):
    def test_a_kernel_within_its_budget_passes(self):
        self.assertEqual(problems(report()), [])
        self.assertEqual(problems(report(registers=128, static=", 1376 bytes smem"), 100000), [])

    def test_each_resource_over_its_budget_is_named_with_the_kernel(self):
        cases = {"registers": report(registers=129), "spills": report(stores=4, loads=4),
                 "stack": report(stack=16)}
        for what, text in cases.items():
            found = problems(text)
            self.assertEqual(len(found), 1, found)
            self.assertIn("small_kernel<64>", found[0])
            self.assertIn("sm_80", found[0])
            self.assertIn(what, found[0])

    def test_static_and_dynamic_shared_memory_add_up(self):
        self.assertEqual(problems(report(static=", 1376 bytes smem"), 100000), [])
        found = problems(report(static=", 1377 bytes smem"), 100000)
        self.assertIn("101377 bytes of shared memory, at most 101376", found[0])

    def test_a_kernel_without_a_recorded_launch_fails(self):
        self.assertIn("no recorded launch", problems(report(), None)[0])

    def test_a_kernel_without_a_budget_fails(self):
        self.assertIn("has no budget", problems(report(target="sm_89"), 0, "sm_89")[0])

    def test_the_first_budget_that_names_the_kernel_counts(self):
        one = BUDGETS[0].budgets[0]
        for kernels, registers in (("*small_kernelILi64E*", 64), ("*small_kernelILi128E*", 128)):
            budgets = [{**one, "kernels": kernels, "registers": 64}, one]
            found = Folder("ladder", "ladder", {}, 1, budgets).budget("ladder/04", NAME, "sm_80")
            self.assertEqual(found["registers"], registers)

    def test_a_kernel_without_a_digest_fails(self):
        for functions in ({}, {"sm_80": {}}, {"sm_90": {NAME: "0" * 16}}):
            found = problems(report(), code={"nvcc": "13.0.88", "functions": functions})
            self.assertEqual(found, ["ladder/04: small_kernel<64> for sm_80: has no digest in machine_code.json"])

    def test_a_cut_off_report_fails(self):
        cut = report().split("ptxas info    : Used")[0]
        self.assertIn("not complete", problems(cut)[0])

    def test_kernels_are_named_as_in_their_source(self):
        for mangled, name in (
                (NAME, "small_kernel<64>"),
                ("_ZN9flashcore4cuda51_GLOBAL__N__d9554ea7_18_05_warp_softmax_cu_b49a1ba119"
                 "warp_softmax_kernelILi128EEEvNS1_10RungParamsE", "warp_softmax_kernel<128>"),
                ("_ZN4cuda46_GLOBAL__N__a4ed0bf5_13_00_unfused_cu_fdb4838e14softmax_kernelEv",
                 "softmax_kernel"), ("unknown", "unknown")):
            self.assertEqual(check_resources.short_name(mangled), name)

    def test_an_empty_build_fails(self):
        self.assertIn("no ptxas reports", check_resources.check({}, {}, BUDGETS, CODE)[1][0])
        self.assertIn("names no kernel", problems("ptxas info    : 0 bytes gmem\n")[0])

    def test_reports_are_those_of_the_builds_objects(self):
        with tempfile.TemporaryDirectory() as folder:
            build = pathlib.Path(folder)
            base = build / "src/cuda/CMakeFiles/flashcore_cuda.dir"
            for name in ("ladder/04", "ladder/gone"):
                made = base / f"{name}.cu.o"
                made.parent.mkdir(parents=True, exist_ok=True)
                made.touch()
                made.with_name(made.name + ".ptxas.txt").write_text(report(), encoding="utf-8")
            objects = [f"{base}/./ladder/04.cu.o", f"{base}/tile/tensor_map.cpp.o"]
            (build / "cuda_objects.txt").write_text("\n".join(objects) + "\n", encoding="utf-8")
            self.assertEqual(list(check_resources.read_reports(check_resources.objects_of(build))), ["ladder/04"])
            objects.append(f"{base}/./ladder/05.cu.o")
            (build / "cuda_objects.txt").write_text("\n".join(objects) + "\n", encoding="utf-8")
            with self.assertRaisesRegex(SystemExit, "05.cu.o: is of this build but was not built"):
                check_resources.read_reports(check_resources.objects_of(build))

    def test_a_dropped_fast_path_fails(self):
        alarm = "ptxas info    : (C7599) Potential Performance Loss\n"
        self.assertEqual(problems(report(extra=alarm)), [])
        for code in ("C7507", "C7508", "C7510", "C7511", "C7514", "C7518", "C7519"):
            found = problems(report(extra=alarm.replace("C7599", code)))
            self.assertIn(code, found[0])


class CodeSize(unittest.TestCase):
    FAMILY = [Folder("forward/kernel", "kernel", {}, 1, [])]

    def test_a_family_is_the_sum_of_its_objects(self):
        with tempfile.TemporaryDirectory() as name:
            build = pathlib.Path(name)
            base = build / "src/cuda/CMakeFiles/flashcore_cuda.dir"
            listed = []
            for file, size in (("forward/kernel/a", 64), ("generated/forward/kernel/b", 40),
                               ("forward/kernel_b/c", 1000), ("forward/kernel/of_an_older_build", 500)):
                contents = elf({".nv_fatbin": container(entry(2, 80, b"x" * size))})
                (base / file).parent.mkdir(parents=True, exist_ok=True)
                (base / f"{file}.cu.o").write_bytes(contents)
                if "older" not in file:
                    listed.append(f"{base}/./{file}.cu.o")
            (build / check_resources.OBJECTS).write_text("\n".join(listed), encoding="utf-8")
            found = check_resources.code_sizes(check_resources.objects_of(build), self.FAMILY)
            self.assertEqual(dict(found), {("kernel", "sm_80"): 104})

    def test_a_family_is_held_to_its_own_size(self):
        def said(sizes):
            return check_resources.too_much_code(sizes, self.FAMILY)

        self.assertEqual(said({("kernel", "sm_80"): 1024}), [])
        self.assertEqual(said({("kernel", "sm_80"): 1024, ("kernel", "sm_90"): 1025}),
                         ["over budget: kernel has 1025 bytes of code for sm_90, at most 1024"])
        self.assertIn("no device code was found", said({})[0])


class Folders(unittest.TestCase):
    def test_a_key_that_is_not_known_is_refused(self):
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "src/cuda/a/kernel.json"
            path.parent.mkdir(parents=True)
            sound = {"name": "a", "targets": ["80"], "kernels": {"a": {}}, "code_kb": 1, "budgets": []}
            path.write_text(json.dumps(sound))
            self.assertEqual(folders(pathlib.Path(name))[0].name, "a")
            path.write_text(json.dumps(sound | {"kernels": {"a": {"fills_gpu": False}}}))
            with self.assertRaisesRegex(Failure, r"kernel.json: kernels.a: .*'fills_gpu' was unexpected"):
                folders(pathlib.Path(name))


class Compile(unittest.TestCase):
    def test_spills_and_alarms_fail_the_compilation(self):
        self.assertEqual(compile_cuda.complaints(report()), [])
        self.assertIn(NAME, compile_cuda.complaints(report(loads=8))[0])
        alarm = "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored\n"
        self.assertIn("C7508", compile_cuda.complaints(report(extra=alarm))[0])


if __name__ == "__main__":
    unittest.main()
