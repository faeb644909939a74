"""The command ``ditron``: what it prints where, and its exit codes."""

import gc
import json
import subprocess
import sys
import time
from pathlib import Path

import paths
import pytest

from ditron.cli import main

HERE = paths.ROOT / "test" / "python" / "support"
KERNELS = str(HERE / "cli_kernels.py")
SCRIPT = str(HERE / "cli_script.py")
EXAMPLES = paths.EXAMPLES


@pytest.mark.parametrize("arguments", [[], ["compile"], ["dump"], ["passes"], ["run"], ["doctor"]])
def test_help(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--help"])
    assert stop.value.code == 0
    assert "usage: ditron" in capsys.readouterr().out


def test_help_waits_for_nothing():
    code = (
        "import sys\nfrom ditron.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'triton', 'llvmlite'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.endswith("[]\n")


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("ditron 0.")


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["--stage", "ttir"], 'symbol = "ditron.wait"'),
        ([], "ditron.wait %"),
        (["--stage", "ditron", "--locations"], "cli_kernels.py"),
        (["--stage", "lowered"], 'symbol = "ditron_wait"'),
        (["--stage", "ttgir"], 'ttg.num-warps" = 2'),
        (["--stage", "ttgir", "--num-warps", "8"], 'ttg.num-warps" = 8'),
        (["--stage", "llir", "--transport", "nvshmem"], "@nvshmemx_putmem_nbi_block"),
        (["--stage", "llir", "--constexpr", "BLOCK=128"], "1.280000e+02"),
        (["--stage", "ptx"], ".entry good("),
        (["--stage", "amdgcn"], ".amdgcn_target"),
        (["--stage", "sim-llvm"], "@ditron_sim_wait"),
        (["--stage", "ditron", "--target", "sim", "--signature", "*fp16,*i64,i32"], "tensor<64xf16>"),
        (["--stage", "ditron", "--signature", "x_ptr=*bf16,signal_ptr=*i64,n=i32"], "tensor<64xbf16>"),
    ],
)
def test_dump(arguments, expected, capsys):
    assert main(["dump", f"{KERNELS}:good", *arguments]) == 0
    assert expected in capsys.readouterr().out


def test_dump_of_a_mixed_module(tmp_path, capsys):
    file = tmp_path / "module.mlir"
    assert main(["dump", f"{KERNELS}:good", "-o", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert main(["dump", str(file), "--stage", "llir", "--transport", "nvshmem"]) == 0
    assert "@nvshmemx_putmem_nbi_block" in capsys.readouterr().out
    assert main(["dump", str(file), "--stage", "ttir"]) == 1
    assert "an MLIR file begins at stage 'ditron'" in capsys.readouterr().err


def test_dump_with_the_sanitizer(capsys, monkeypatch):
    texts = []
    for environment, options in (("", []), ("", ["--sanitize"]), ("1", [])):
        monkeypatch.setenv("DITRON_SANITIZE", environment)
        assert main(["dump", f"{KERNELS}:good", "--stage", "lowered", *options]) == 0
        texts.append(capsys.readouterr().out)
    plain, by_option, by_variable = texts
    assert by_option == by_variable != plain


GPU_OPS = str(paths.ROOT / "test/lit/lowering/Inputs/gpu-ops.mlir")


def test_dump_of_one_kernel_among_several(capsys):
    assert main(["dump", f"{GPU_OPS}:putmem_nbi", "--stage", "llir", "--transport", "nvshmem"]) == 0
    assert "@nvshmemx_putmem_nbi_block" in capsys.readouterr().out
    assert main(["dump", GPU_OPS, "--stage", "llir"]) == 2
    assert "give" in (err := capsys.readouterr().err) and "putmem_nbi" in err
    assert main(["dump", f"{GPU_OPS}:teleport"]) == 2
    assert "the module has no kernel 'teleport'" in capsys.readouterr().err


def test_print_after(capfd):
    assert main(["dump", f"{KERNELS}:good", "--stage", "lowered", "--print-after", "raise-primitives"]) == 0
    shown = capfd.readouterr().err
    assert "raise-primitives" in shown and "ditron.wait" in shown and "ditron_wait" not in shown


@pytest.mark.parametrize(
    "target, transport, stages, missing",
    [
        ("cuda:90", "p2p", ["ttir", "ditron", "lowered", "ttgir", "llir", "ptx", "cubin"], None),
        ("hip:gfx942", "p2p", ["ttir", "ditron", "lowered", "ttgir", "llir", "amdgcn", "hsaco"], None),
        ("hip:gfx942", "rocshmem", ["ttir", "ditron", "lowered", "ttgir", "llir", "amdgcn"], "hsaco"),
        ("sim", None, ["ttir", "ditron", "lowered", "ll"], None),
    ],
)
def test_compile(target, transport, stages, missing, tmp_path, capsys, monkeypatch):
    from ditron_compiler.frontend import device_libraries as gpu_libraries

    monkeypatch.setattr(gpu_libraries, "rocshmem_bitcode", lambda arch: None)
    arguments = ["compile", f"{KERNELS}:good", "--target", target, "-o", str(tmp_path)]
    assert main(arguments + (["--transport", transport] if transport else [])) == 0
    out, err = capsys.readouterr()
    for stage in stages:
        assert (tmp_path / f"good.{stage}").stat().st_size > 0
    about = json.loads((tmp_path / "good.json").read_text())
    assert about["target"] == target and set(about["missing"]) == ({missing} if missing else set())
    if missing:
        assert not (tmp_path / f"good.{missing}").exists()
        assert "rocSHMEM's device library (librocshmem_device.bc) was not found" in err
    assert out.splitlines()[0] == f"good for {target}, transport {transport or 'sim'}"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["dump", "no_such.py:kernel"], "no such file: no_such.py"),
        (["dump", f"{KERNELS}:nothing"], "has no kernel 'nothing'; its kernels are: bad_pointer, bad_scope, good"),
        (["dump", KERNELS], "cli_kernels.py:KERNEL; its kernels are: bad_pointer, bad_scope, good"),
        (["dump", f"{KERNELS}:not_a_kernel"], "has no kernel 'not_a_kernel'"),
        (["dump", f"{KERNELS}:good", "--stage", "sass"], "unknown stage 'sass': expected one of ttir, ditron, lowered"),
        (["dump", f"{KERNELS}:good", "--stage", "ptx", "--target", "sim"], "target 'sim' has no stage 'ptx': expected"),
        (["dump", f"{KERNELS}:good", "--target", "metal"], "unknown target 'metal': expected 'cuda:SM'"),
        (
            ["compile", f"{KERNELS}:good", "--target", "cuda:999"],
            "unknown compute capability in target 'cuda:999': expected cuda: and one of 75, 80, 86,",
        ),
        (
            ["compile", f"{KERNELS}:good", "--target", "hip:gfx999"],
            "unknown architecture in target 'hip:gfx999': expected hip: and one of gfx908, gfx90a",
        ),
        (
            ["compile", f"{KERNELS}:good", "--option", "foo=1"],
            "unknown option 'foo' for target 'cuda:90': expected one of allowed_dot_input_precisions, debug, ",
        ),
        (["compile", f"{KERNELS}:good", "--option", "arch=sm80"], "unknown option 'arch' for target 'cuda:90'"),
        (["dump", f"{KERNELS}:good", "--target", "sim", "--option", "waves_per_eu=1"], "unknown option 'waves_per_eu'"),
        (
            ["dump", f"{KERNELS}:good", "--num-warps", "3"],
            "options for target 'cuda:90': num_warps must be a power of 2",
        ),
        (
            ["compile", f"{KERNELS}:good", "--transport", "tcp"],
            "unknown transport 'tcp' for target 'cuda:90': expected",
        ),
        (["compile", f"{KERNELS}:good", "--transport", "rocshmem"], "expected one of 'p2p', 'nvshmem'"),
        (
            ["dump", f"{KERNELS}:good", "--print-after", "fuse"],
            "no pass 'fuse' runs for target 'cuda:90': expected one of raise-primitives",
        ),
        (["dump", f"{KERNELS}:good", "--signature", "*fp32"], "expected 3 types, for x_ptr, signal_ptr, n; got 1"),
        (["dump", f"{KERNELS}:good", "--signature", "x=*fp32"], "no parameter is called 'x'; its parameters are x_ptr"),
        (
            ["dump", f"{KERNELS}:good", "--signature", "*float,*i64,i32"],
            "type '*float' of 'x_ptr' is not known: expected",
        ),
        (["dump", f"{KERNELS}:good", "--signature", "x_ptr=*fp32,*i64"], "expected all types by name or all in order"),
        (["dump", f"{KERNELS}:good", "--constexpr", "BLOCK"], "--constexpr 'BLOCK': expected NAME=VALUE"),
        (["dump", f"{KERNELS}:good", "--constexpr", "BLOK=1"], "no parameter is called 'BLOK'"),
        (["run", "--sim", "0", SCRIPT], "--sim 0: expected at least 1 rank"),
        (["run", "--sim", "4", "--nodes", "3", SCRIPT], "--nodes 3: expected a number that divides the 4 ranks"),
        (["run", "--sim", "4", "no_such.py"], "no such file: no_such.py"),
    ],
)
def test_usage_errors(arguments, message, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err and len(err.splitlines()) == 1


@pytest.mark.parametrize("text, said", [("import ditron\ndef f(:\n", "line 2"), ("x = 1\0", "null bytes")])
def test_a_script_that_does_not_parse(text, said, tmp_path, capsys):
    file = tmp_path / "broken.py"
    file.write_text(text)
    assert main(["run", "--sim", "2", str(file)]) == 2
    err = capsys.readouterr().err
    assert f"{file} is no Python script" in err and said in err and "Traceback" not in err


def test_kernel_without_source(tmp_path, capsys):
    file = tmp_path / "generated.py"
    file.write_text("import ditron\nexec('@ditron.jit\\ndef kernel(x):\\n    pass\\n')\n")
    assert main(["dump", f"{file}:kernel"]) == 2
    assert "needs the source of 'kernel', which cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "kernel, message, line",
    [
        (
            "bad_scope",
            "error: dl.wait: scope must be one of 'gpu', 'node', 'world', got 'system'",
            "dl.wait(signal_ptr",
        ),
        ("bad_pointer", "error: 'ditron.putmem' op", "dl.putmem(dl.symm_at(x_ptr, n)"),
    ],
)
def test_compile_errors(kernel, message, line, capsys):
    assert main(["compile", f"{KERNELS}:{kernel}"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    first, second, third = err.splitlines()[:3]
    assert first.startswith(f"{KERNELS}:") and message in first
    assert second.lstrip().startswith(line)
    assert third.strip() == "^"


def test_mlir_errors(tmp_path, capsys):
    file = tmp_path / "broken.mlir"
    file.write_text("module {\n  %0 = ditron.rank team galaxy\n}\n")
    assert main(["dump", str(file), "--stage", "lowered"]) == 1
    assert capsys.readouterr().err.startswith(f"{file}:2:")


def run_cli(*arguments):
    return subprocess.run([sys.executable, "-m", "ditron.cli", *arguments], capture_output=True, text=True)


def test_run():
    done = run_cli("run", "--sim", "4", "--nodes", "1", "--seed", "3", SCRIPT, "--flag", "value")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {r} ['--flag', 'value']" for r in range(4)]


def test_run_exit_code_and_errors():
    assert run_cli("run", "--sim", "2", SCRIPT, "fail").returncode == 5
    stuck = run_cli("run", "--sim", "2", SCRIPT, "hang")
    assert stuck.returncode == 1
    assert "cli_script.py" in stuck.stderr and "Traceback" not in stuck.stderr


BOOM = """import ditron

def main():
    ditron.init(sim=2)
    raise ValueError("mine")

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("options", [[], ["--seeds", "2"], ["--seed", "4"]])
def test_an_error_of_the_script_is_shown_as_python_does(tmp_path, options, capsys):
    file = tmp_path / "boom.py"
    file.write_text(BOOM)
    assert main(["run", "--sim", "2", *options, str(file)]) == 1
    first, *frames, error, rank, again = capsys.readouterr().err.splitlines()
    seed = 4 if "--seed" in options else 0
    assert first == "Traceback (most recent call last):" and error == "ValueError: mine"
    assert rank.startswith("raised on rank ") and again.endswith(f"again: ditron run --sim 2 --replay {seed} {file}")
    assert [line.split(",")[0] for line in frames if "File " in line] == 2 * [f'  File "{file}"']
    with pytest.raises(ValueError, match="mine"):
        main(["run", "--sim", "2", "--traceback", *options, str(file)])


LATE = """import os
import ditron

ditron.init()
seed = ditron.sim.current_world()._world.seed
print("seed", seed)
if seed in (5, 7):
    raise ValueError(f"mine {seed}")
if seed == 11:
    os._exit(3)
"""


@pytest.mark.parametrize("code", [0, 3])
def test_exploring_seeds_leaves_the_garbage_collector_as_it_was(code, capsys):
    from ditron.cli.exploring import explore

    before = gc.get_freeze_count()
    assert explore(range(2), lambda seed: code * seed, lambda seed: "") == code
    assert gc.get_freeze_count() == before == 0


def test_seeds_in_several_processes_end_as_in_one(tmp_path, capsys):
    file = tmp_path / "late.py"
    file.write_text(LATE)
    seeds = ["run", "--sim", "1", "--seeds", "9", str(file)]
    assert main(seeds) == 1
    alone = capsys.readouterr()
    assert "mine 5" in alone.err and alone.out == "seed 5\n"
    assert main([*seeds[:3], "--jobs", "2", *seeds[3:]]) == 1
    assert capsys.readouterr() == alone
    assert main(["run", "--sim", "1", "--jobs", "2", "--seeds", "4", "--seed", "8", str(file)]) == 1
    assert "a process that ran seeds has died, at seed " in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, said",
    [
        (["--jobs", "2"], "--jobs is for the runs of --seeds"),
        (["--jobs", "0", "--seeds", "2"], "--jobs 0: expected at least 1 process"),
        (["--jobs", "2", "--seeds", "2", "--trace", "t.json"], "--trace and --timeline are of one run"),
    ],
)
def test_jobs_are_for_seeds(options, said, capsys):
    assert main(["run", "--sim", "1", *options, SCRIPT]) == 2
    assert said in capsys.readouterr().err


def test_processes_that_run_seeds_end_with_the_command(tmp_path):
    file = tmp_path / "slow.py"
    file.write_text("import os, time\nopen(f'{os.getpid()}.pid', 'w').close()\ntime.sleep(600)\n")
    command = ["ditron.cli", "run", "--sim", "1", "--seeds", "8", "--jobs", "2", file]
    run = subprocess.Popen([sys.executable, "-m", *command], cwd=tmp_path)
    try:
        while len(workers := list(tmp_path.glob("*.pid"))) < 2 and run.poll() is None:
            time.sleep(0.1)
    finally:
        run.terminate()
        run.wait()
    assert len(workers) == 2
    while any(Path(f"/proc/{worker.stem}").exists() for worker in workers):  # else the time limit of the tests
        time.sleep(0.1)


@pytest.mark.parametrize("command", [["dump", "{}:k"], ["check", "{}"], ["check", "{}:k"], ["compile", "{}:k"]])
def test_an_error_in_a_file_that_is_imported_is_shown_as_python_does(tmp_path, command, capsys, monkeypatch):
    (tmp_path / "broken.py").write_text("import ditron\n\nkernel = undefined\n")
    monkeypatch.chdir(tmp_path)
    assert main([word.format("broken.py") for word in command]) == 1
    first, place, line, *_, error = capsys.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):" and 'broken.py", line 3, in <module>' in place
    assert line == "    kernel = undefined" and error == "NameError: name 'undefined' is not defined"


def test_a_wrong_call_of_the_script_is_shown_with_its_line(tmp_path, capsys):
    file = tmp_path / "wrong.py"
    file.write_text(BOOM.replace('raise ValueError("mine")', "ditron.new_group([5])"))
    assert main(["run", "--sim", "2", str(file)]) == 1
    message, place, again = capsys.readouterr().err.splitlines()
    assert message == "new_group: expected distinct world ranks from 0 to 1, got [5]"
    assert place == f"  at {file}:5" and again == f"seed 0; again: ditron run --sim 2 --replay 0 {file}"


def test_an_error_in_a_function_of_a_program_names_the_programs_line_alone(tmp_path, capsys):
    """It is raised where the stream runs, which has no line of the script."""
    file = tmp_path / "wrong.py"
    file.write_text(
        "import torch, ditron, ditron.host as dh\n\n"
        "def broken(a, b):\n    raise ValueError('mine')\n\n"
        "@ditron.program\ndef calls(a, b):\n    dh.call(broken, reads=[a], writes=[b])\n\n"
        "ditron.init()\ncalls(torch.zeros(4), torch.zeros(4))\n"
    )
    assert main(["run", "--sim", "2", str(file)]) == 1
    message, again = capsys.readouterr().err.splitlines()
    assert message == f"{file}:8:5: 'broken', which the program calls here, raised ValueError: mine"
    assert again == f"seed 0; again: ditron run --sim 2 --replay 0 {file}"


def test_a_script_that_kills_the_process_is_shown_with_its_line(tmp_path):
    file = tmp_path / "fatal.py"
    file.write_text("import ctypes\n\nctypes.string_at(0)\n")
    dead = run_cli("run", "--sim", "2", "--seeds", "3", str(file))
    assert dead.returncode < 0
    assert "Segmentation fault" in dead.stderr and f'File "{file}", line 3 in <module>' in dead.stderr


@pytest.mark.parametrize("also", [["--seeds", "4"], ["--seed", "1"]])
def test_a_replay_is_one_run(also, capsys):
    assert main(["run", "--sim", "2", "--replay", "3", *also, SCRIPT]) == 2
    assert (
        "--replay is one seed's run: leave out --seed and --seeds, or explore from there on by --seed 3 --seeds "
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("option", ["--seed", "--replay"])
def test_a_seed_that_is_none(option, capsys):
    assert main(["run", "--sim", "2", option, "-3", SCRIPT]) == 2
    assert "seed -3: expected a number from 0 to" in capsys.readouterr().err


READS_BEYOND = """import torch, triton
import triton.language as tl

@triton.jit
def total(x, out):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, 32))))

total[(1,)](torch.ones(20), torch.zeros(1))
"""


@pytest.mark.parametrize("jobs", [[], ["--jobs", "2"]])
def test_warnings_of_clean_seeds_are_shown(jobs, tmp_path):
    file = tmp_path / "beyond.py"
    file.write_text(READS_BEYOND)
    done = run_cli("run", "--sim", "1", "--seeds", "4", *jobs, str(file))
    assert done.returncode == 0 and done.stdout == "4 seeds, 0 to 3: nothing found\n"
    assert done.stderr.count(f"{file}:6: UserWarning: a load of") == 4, "once for each run"


def test_several_constants_in_one_word(capsys):
    assert main(["dump", f"{KERNELS}:good", "--constexpr", "BLOCK=16,OTHER=0"]) == 2
    assert (
        "--constexpr 'BLOCK=16,OTHER=0': expected one NAME=VALUE; repeat --constexpr for each"
        in capsys.readouterr().err
    )


def test_long_commands_say_on_a_terminal_what_they_are_at(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["run", "--sim", "2", "--seeds", "2", "--seed", "5", SCRIPT]) == 0
    out, err = capsys.readouterr()
    assert out == "2 seeds, 5 to 6: nothing found\n"
    assert err.split("\r\x1b[K") == ["", "seed 5, 1 of 2", "", "seed 6, 2 of 2", ""]
    assert main(["check", "--ranks", "4", "--ranks-per-node", "2", f"{EXAMPLES / 'ag_gemm.py'}:ag_gemm"]) == 1
    assert capsys.readouterr().err.startswith("\r\x1b[Kag_gemm: 4 ranks on 2 nodes ...\r\x1b[Kprogram 'ag_gemm' (max_")


UNGUARDED = """import torch
import ditron, ditron.language as dl

@ditron.jit
def tell(flag):
    dl.notify(flag, 0, 1)

ditron.init(sim=2)
tell[(1,)](ditron.symm_zeros(1, dtype=torch.int64, name="flag"))
print("it ran")
"""


def test_a_script_that_runs_when_it_is_imported(tmp_path, capsys):
    file = tmp_path / "unguarded.py"
    file.write_text(UNGUARDED)
    for command in (["dump", f"{file}:tell"], ["check", f"{file}:tell"], ["compile", f"{file}:tell"]):
        assert main(command) == 2
        out, err = capsys.readouterr()
        assert err.startswith(
            f"ditron: {file}:8: ditron.init() is called when the file is imported; this command "
            "imports it for what it defines: put what the file runs under 'if __name__ "
        ), err
        assert "again:" not in err and not out
    assert main(["check", str(file)]) == 0, "a script is run, to be checked"
    assert "unguarded.py: no findings (1 rank" in capsys.readouterr().out
    file.write_text(UNGUARDED.replace("ditron.init(sim=2)", "import sys\nsys.exit(3)"))
    assert main(["dump", f"{file}:tell"]) == 2
    assert "unguarded.py ends the process when it is imported; this command" in capsys.readouterr().err
