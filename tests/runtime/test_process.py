"""The promises about the process: forks, threads, the end, caches, sizes, messages, files."""

from __future__ import annotations

import gc
import logging
import os
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyeffect_torch as et
from pyeffect_torch.core import forks
from pyeffect_torch.core.collector import collector_paused
from pyeffect_torch.core.graph import TOKENS
from pyeffect_torch.core.op import REGISTRY
from pyeffect_torch.ops.base import operand
from pyeffect_torch.testing.declarations import draw_samples, is_region, is_structural, results_of

ROOT = Path(__file__).parents[2]
f32 = np.float32
THREADS = 4


def run_python(code: str, *arguments: str, **environment: str) -> str:
    """Run a program in a process of its own, whose status must be 0; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def together(work: Callable[[int], Any]) -> list[Any]:
    """Do `work(number)` on several threads that start at the same moment."""
    barrier = threading.Barrier(THREADS)

    def one(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


# --- import and threads of the core


COUNT = """
import os, threading
def count():
    tasks = "/proc/self/task"
    return len(os.listdir(tasks)) if os.path.isdir(tasks) else threading.active_count()
"""


def test_no_thread_starts_before_a_program_needs_one() -> None:
    program = COUNT + (
        "import numpy\n"  # its BLAS has threads of its own
        "before = count()\n"
        "import pyeffect_torch as et\n"
        "assert count() == before, 'at import'\n"
        "et.cpu(); et.get_num_threads(); et.set_num_threads(3)\n"
        "assert count() == before, 'at the first runtime'\n"
        "assert (et.array([1.0, 2.0]) * 2.0).tolist() == [2.0, 4.0]\n"
        "assert count() == before, 'for a small program'\n"
    )
    run_python(program)


def test_the_number_of_threads_is_set_and_read() -> None:
    before = et.get_num_threads()
    hidden = et.cpu(without="exp")
    try:
        et.set_num_threads(3)
        assert et.get_num_threads() == 3
        assert hidden.memory_stats()["threads"] == 3
        assert et.cpu(without="log").memory_stats()["threads"] == 3
    finally:
        et.set_num_threads(0)
    assert et.get_num_threads() == before
    assert et.cpu(without="tanh").memory_stats()["threads"] == before


@pytest.mark.parametrize("count", [-1, 257, 1.5, True, "2", None])
def test_a_number_of_threads_that_cannot_be_is_refused(count: Any) -> None:
    with pytest.raises(et.errors.ArgumentError, match="set_num_threads: cannot have"):
        et.set_num_threads(count)


def test_the_number_of_threads_changes_no_bit() -> None:
    rng = np.random.default_rng(2)
    a = et.array(rng.standard_normal((300, 70_001), dtype=f32))

    def work() -> list[bytes]:
        values = [a.sum(), a.mean(1), et.softmax(a, 0), a[:, :211] @ a[:211, :83], et.exp(a).max()]
        return [value.numpy().tobytes() for value in et.compute(values)]

    found = []
    try:
        for count in (1, 2, 5):
            et.set_num_threads(count)
            found.append(work())
    finally:
        et.set_num_threads(0)
    assert found[1] == found[0]
    assert found[2] == found[0]


READ_COUNT = "import pyeffect_torch as et; print(et.get_num_threads())"


def test_the_environment_sets_the_number_of_threads() -> None:
    assert run_python(READ_COUNT, PYEFFECT_NUM_THREADS="7") == "7\n"
    program = "import pyeffect_torch as et; et.set_num_threads(2); et.set_num_threads(0);"
    assert run_python(program + READ_COUNT, PYEFFECT_NUM_THREADS=" 5 ") == "5\n"


@pytest.mark.parametrize("text", ["many", "-1", "257", "1.5", "٣x"])
def test_a_variable_that_is_no_number_of_threads_is_refused(text: str) -> None:
    program = (
        "import pyeffect_torch as et\n"
        "try: et.array(1.0)\n"
        "except et.errors.ArgumentError as error: print(error)\n"
    )
    assert "PYEFFECT_NUM_THREADS: cannot have" in run_python(program, PYEFFECT_NUM_THREADS=text)


def quota_of_this_process() -> float:
    """The tightest cpu quota of this process's cgroups, in cores, as the kernel's files say."""
    found = [float("inf")]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        unified = not controllers
        if not unified and "cpu" not in controllers.split(","):
            continue
        root = Path("/sys/fs/cgroup") if unified else Path("/sys/fs/cgroup/cpu")
        below = Path(path.lstrip("/"))
        for folder in (root / below, *((root / up) for up in below.parents)):
            if unified and (folder / "cpu.max").exists():
                quota, period = (folder / "cpu.max").read_text().split()
                found.append(float("inf") if quota == "max" else int(quota) / int(period))
            elif not unified and (folder / "cpu.cfs_quota_us").exists():
                quota, period = (
                    int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period")
                )
                found.append(quota / period if quota > 0 else float("inf"))
    return min(found)


def test_the_default_follows_the_affinity_mask_and_the_quota() -> None:
    # What the core does with a quota is tested in zig/os.zig, on files of its own.
    environment = {"PYEFFECT_NUM_THREADS": ""}
    if not hasattr(os, "sched_getaffinity"):
        assert run_python(READ_COUNT, **environment) == f"{os.cpu_count()}\n"
        return
    cores = sorted(os.sched_getaffinity(0))
    for count in (1, len(cores)):
        program = f"import os; os.sched_setaffinity(0, {cores[:count]});" + READ_COUNT
        want = max(1, int(min(count, -(-quota_of_this_process() // 1))))
        assert run_python(program, **environment) == f"{want}\n"


# --- forks


FORK = """
import os, signal, sys, threading
import numpy as np
import pyeffect_torch as et

x = et.array(np.linspace(0.0, 1.0, 300_000, dtype=np.float32))
compiled = et.jit(lambda v: et.tanh(v).sum())
want = float(compiled(x))

def child_works(more=lambda: None):
    # Whether a forked child computes, lazily, compiled, and with derivatives; a hang is killed.
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        code = 1
        try:
            more()
            assert float(compiled(x)) == want
            assert float(et.jit(lambda v: et.tanh(v).sum() * 2.0)(x)) == 2.0 * want
            slope = et.grad(lambda v: et.tanh(v).sum())(x).numpy()
            assert slope[0] == 1.0
            assert float(et.rand(())) < 1.0
            code = 0
        except RuntimeError:
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""

FORK_BUSY = """
stop = threading.Event()

def busy(number):
    n = 0
    while not stop.is_set():
        n += 1
        et.jit(lambda v: et.sin(v * float(n)).sum())(x).numpy()
        et.grad(lambda v: (v * v).sum())(x).numpy()
        compiled(x)

threads = [threading.Thread(target=busy, args=(k,)) for k in range(3)]
for thread in threads:
    thread.start()
assert all([child_works() for _ in range(25)])
stop.set()
for thread in threads:
    thread.join()
assert float(compiled(x)) == want and child_works()
"""

FORK_IN_TRACE = """
inside, leave = threading.Event(), threading.Event()

def slow(v):
    if not inside.is_set():
        inside.set()
        leave.wait()
    return v + 1.0

traced = et.jit(slow)
thread = threading.Thread(target=lambda: et.grad(lambda v: traced(v).sum())(x))
thread.start()
inside.wait()

def more():
    import gc
    from pyeffect_torch.core.graph import TOKENS
    assert traced(x).numpy()[0] == 1.0
    assert gc.isenabled() and TOKENS.live == {}

assert child_works(more)
leave.set()
thread.join()
"""

FORK_IN_RUN = """
y = et.compute(et.ones((1024, 1024)) * 1e-3)

def chain(v):
    for _ in range(1500):
        v = v @ y
    return v

product = et.jit(chain)
executable = product.lower(y).compile()
scope = []
def work():
    with et.cancel_scope() as made:
        scope.append(made)
        try:
            product(y)
        except et.errors.CancelledError:
            scope.append(None)
before = et.cpu().memory_stats()["runs"]
thread = threading.Thread(target=work)
thread.start()
while not scope or not scope[0]._hooks:
    pass
assert all([child_works() for _ in range(3)])
scope[0].cancel()
thread.join()
assert scope[1] is None  # it ran all the time
assert child_works()
"""


@pytest.mark.parametrize(
    "code", [FORK_BUSY, FORK_IN_TRACE, FORK_IN_RUN], ids=["busy", "trace", "run"]
)
def test_a_forked_child_computes(code: str) -> None:
    run_python(FORK + code)


def test_locks_are_free_in_a_forked_child() -> None:
    held, leave = threading.Event(), threading.Event()
    made = [forks.lock(), forks.reentrant_lock()]

    def hold() -> None:
        with made[0], made[1], collector_paused():
            held.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        child = os.fork()
        if child == 0:
            free = all(lock.acquire(blocking=False) for lock in made)
            os._exit(0 if free and gc.isenabled() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not any(lock.acquire(blocking=False) for lock in made)
    finally:
        leave.set()
        thread.join()


# --- threads


OPS = [
    op
    for op in REGISTRY.values()
    if not is_structural(op) and not is_region(op) and op.domain is not None
]


def test_every_operation_may_be_called_from_several_threads() -> None:
    def values(number: int) -> list[bytes]:
        out: list[bytes] = []
        for op in OPS[number:] + OPS[:number]:
            dtype = op.domain.dtypes[-1]
            for sample in draw_samples(op, dtype)[:2]:
                inputs = [operand(op.name, value) for value in sample.inputs]
                roots = et.compute(results_of(op, inputs, sample.params))
                out.append(op.name.encode() + b"".join(root.numpy().tobytes() for root in roots))
        return sorted(out)

    want = values(0)
    assert together(values) == [want] * THREADS


def everything_else(folder: Path, number: int) -> list[Any]:
    """One call of each public function that is no operation."""
    x, key = et.linspace(0.1, 0.9, 8), et.random.key(number)
    params = {"layer": [{"w": et.ones((8, 8)) * 0.1}]}

    def loss(p: Any, x: Any) -> Any:
        return et.checkpoint(lambda q, y: et.tanh(q["layer"][0]["w"] @ y).sum())(p, x)

    @et.custom_vjp
    def bent(x: Any) -> Any:
        return et.sin(x)

    bent.defvjp(lambda x: (et.sin(x), x), lambda x, ct: (ct * et.cos(x),))
    compiled = et.jit(et.value_and_grad(loss))
    path = folder / f"{number}"
    et.freeze(loss, params, x).save(path.with_suffix(".pet"))
    et.safetensors.save(path.with_suffix(".st"), params)
    loaded = et.safetensors.load_archive(path.with_suffix(".st")).tree()
    with et.use(et.reference()):
        slow = float(et.array([1.0, 2.0]).sum())
    with et.cancel_scope(timeout=100.0):
        value, gradient = compiled(params, x)
    y, pullback = et.vjp(et.sin, x)
    return [
        slow,
        float(value),
        gradient["layer"][0]["w"].tolist(),
        et.load_program(path.with_suffix(".pet"))(loaded, x).tolist(),
        et.vmap(et.grad(bent))(x).tolist(),
        et.jvp(et.sin, (x,), (x,))[1].tolist(),
        et.linearize(et.sin, x)[1](x).tolist(),
        pullback(y)[0].tolist(),
        et.hessian(lambda v: (v * v).sum())(x).tolist(),
        et.jacfwd(et.sin)(x).tolist(),
        et.random.normal(et.random.fold_in(key, 0), (3,)).shape,
        et.rand((2,)).shape,
        str(et.make_ir(loss)(params, x)).count("\n"),
        et.eval_shape(loss, params, x).shape,
        compiled.lower(params, x).explain()["instructions"],
        et.cpu().memory_stats()["threads"],
    ]


def test_every_other_call_may_be_made_from_several_threads(tmp_path: Path) -> None:
    want = everything_else(tmp_path, THREADS)
    assert together(lambda number: everything_else(tmp_path, number)) == [want] * THREADS
    assert TOKENS.live == {}


def test_threads_that_save_one_path_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    together(lambda n: et.safetensors.save(path, {"x": np.full(200_000, n, np.int32)}))
    value = et.safetensors.load(path)["x"].numpy()
    assert (value == value[0]).all()
    assert os.listdir(tmp_path) == [path.name]


def test_a_compiled_function_is_traced_once_for_a_signature() -> None:
    traces: list[int] = []

    def f(x: Any) -> Any:
        traces.append(threading.get_ident())
        return et.sin(x) + 1.0

    g = et.jit(f)
    x = et.compute(et.ones(16) * 0.5)
    results = together(lambda number: [g(x).tolist() for _ in range(20)])
    assert len(traces) == 1
    assert all(row == results[0][0] for rows in results for row in rows)
    assert (g.stats.traces, g.stats.hits) == (1, 20 * THREADS - 1)


# --- the end of the process


BUSY_END = """
import sys, threading
import numpy as np
import pyeffect_torch as et

started = threading.Semaphore(0)
big = et.compute(et.ones((512, 512)) * 1e-3)

def run():
    compiled = et.jit(lambda v: et.tanh((v @ v) @ (v @ v)).sum())
    while True:
        compiled(big)
        started.release()

def trace():
    n = 0
    while True:
        n += 1
        et.jit(et.grad(lambda v: et.sin(v * float(n)).sum()))(big)
        started.release()

def save():
    while True:
        et.safetensors.save(sys.argv[1], {"x": big})
        et.safetensors.load(sys.argv[1])
        started.release()

def transform():
    while True:
        et.vmap(et.grad(lambda v: (v * v).sum()))(big).numpy()
        started.release()

for work in (run, trace, save, transform):
    threading.Thread(target=work, daemon=True).start()
for _ in range(12):
    started.acquire()
"""


def test_a_process_ends_well_while_threads_are_busy(tmp_path: Path) -> None:
    for _ in range(4):
        assert run_python(BUSY_END, str(tmp_path / "x.safetensors")) == ""


# --- the cache of a compiled function


def test_a_cache_is_bounded_and_visible() -> None:
    g = et.jit(lambda x: et.exp(x) * 2.0, cache_capacity=3)
    assert (g.stats.programs, g.stats.bytes) == (0, 0)
    for size in (1, 2, 3, 4, 5, 4, 5):
        g(et.ones(size))
    stats = g.stats
    assert (stats.programs, stats.traces, stats.hits, stats.evictions) == (3, 5, 2, 2)
    assert stats.bytes > 0
    assert stats.compile_seconds > 0
    g.clear()
    assert (g.stats.programs, g.stats.bytes, g.stats.traces) == (0, 0, 5)


def compiled_with_captured_weights() -> Any:
    weights = et.compute(et.ones((256, 1024)) * 0.5)
    g = et.jit(lambda x: x @ weights)
    assert g(et.ones(256)).tolist() == [128.0] * 1024
    return g


def test_a_cache_is_freed_with_its_function() -> None:
    runtime = et.cpu()
    functions = [compiled_with_captured_weights()]
    (entry,) = functions[0]._cache.values()
    (weights,) = entry.traced.captures
    kept = (functions[0], entry.traced.body.roots[0], entry.executable, weights)
    watched = [weakref.ref(item) for item in kept]
    del functions, entry, weights, kept
    gc.collect()
    assert [reference() for reference in watched] == [None] * 4
    # The plan itself may serve another function of the same structure, until it is asked to go.
    before = runtime.memory_stats()
    runtime.clear_caches()
    assert runtime.memory_stats()["executables"] < before["executables"]


def test_clearing_the_caches_gives_the_memory_back() -> None:
    runtime = et.cpu()
    x = et.compute(et.ones((1024, 1024)) * 2.0)
    et.compute(et.softmax(et.exp(x), 0) + x.T)
    before = runtime.memory_stats()
    assert before["cached_bytes"] > 0
    assert before["workspace_bytes"] > 0
    runtime.clear_caches()
    after = runtime.memory_stats()
    assert (after["cached_bytes"], after["workspace_bytes"]) == (0, 0)
    assert after["bytes_live"] == before["bytes_live"]
    assert float((x + 1.0)[0, 0]) == 3.0


# --- why a function was traced again


def f_of(params: Any, x: Any, *rest: Any, scale: Any = 1.0, mode: str = "a") -> Any:
    return params, x, rest, scale


RETRACES: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "shape": (({"b": np.ones(2, f32)}, 1.0), {}, "params['b']: shape [2] instead of []"),
    "dtype": (({"b": 1.0}, 1), {}, "x: dtype int64 instead of float32"),
    "new": (({"b": 1.0, "c": [2.0]}, 1.0), {}, "tree: params['c'][0] is new"),
    "gone": (({}, 1.0), {}, "tree: params['b'] is gone"),
    "kind": (({"b": (1.0,)}, 1.0), {}, "tree: params['b'][0] is new; tree: params['b'] is gone"),
    "rest": (({"b": 1.0}, 1.0, 2.0), {}, "tree: rest[0] is new"),
    "keyword": (({"b": 1.0}, 1.0), {"scale": 2.0}, "tree: scale is new"),
    "static": (({"b": 1.0}, 1.0), {"mode": "b"}, "mode: static value 'b' is new"),
    "two": (({"b": 1}, 1), {}, "params['b']: dtype int64 instead of float32; x: dtype int64"),
}


@pytest.mark.parametrize("name", RETRACES)
def test_a_retrace_is_explained_by_path(name: str, caplog: pytest.LogCaptureFixture) -> None:
    args, kwargs, message = RETRACES[name]
    g = et.jit(f_of, static_argnames="mode")
    g({"b": 1.0}, 1.0)
    assert g.explain_retrace() == "the first call"
    with caplog.at_level(logging.DEBUG, "pyeffect_torch.jit"):
        g(*args, **kwargs)
    assert g.explain_retrace().startswith(message)
    assert f"jit(f_of) traced: {message}" in caplog.text


def test_a_retrace_is_compared_with_the_call_before_it() -> None:
    g = et.jit(lambda x, n: x * n, static_argnums=1)
    a, b = et.compute((et.ones(2) * 1.0, et.ones(3) * 1.0))
    g(a, 1)
    g(a, 2)
    assert g.explain_retrace() == "n: static value 2 instead of 1"
    g(b, 2)
    g(a, 2)
    g(et.ones(5), 2)
    assert g.explain_retrace() == "x: shape [5] instead of [2]"
    g(et.ones(5), 2.0)
    assert g.explain_retrace() == "n: static value 2.0 instead of 2"


def test_many_differences_are_counted() -> None:
    g = et.jit(lambda *leaves: leaves[0])
    g(*[1.0] * 9)
    g(*[1] * 9)
    assert g.explain_retrace().count("dtype int64") == 4
    assert g.explain_retrace().endswith("; and 5 more")


def test_two_equal_trees_of_other_containers_are_printed() -> None:
    g = et.jit(lambda x: x[0])
    g((1.0,))
    g([1.0])
    assert re.match(r"tree: .*\[\*\].* instead of .*\(\*,\)", g.explain_retrace())


def test_a_handler_of_the_log_may_call_the_function() -> None:
    g = et.jit(lambda x: x + 1.0)
    seen: list[Any] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not seen:
                seen.append(None)
                seen.append(g(et.ones(2)).tolist())

    log, handler = logging.getLogger("pyeffect_torch.jit"), Handler()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    try:
        g(et.ones(2))
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    assert seen[1] == [2.0, 2.0]


# --- sizes and indices of 64 bits


def test_shapes_and_sizes_have_64_bits() -> None:
    def wide(x: Any) -> Any:
        return et.broadcast_to(x, (1 << 20, 1 << 20))

    x = et.array([3], "uint8")
    assert (wide(x).size, wide(x).nbytes) == (1 << 40, 1 << 40)
    assert et.jit(lambda x: wide(x)[-1, (1 << 20) - 3 :])(x).tolist() == [3, 3, 3]
    assert et.eval_shape(lambda x: wide(x).reshape(-1), x).shape == (1 << 40,)


def test_indices_and_offsets_have_64_bits() -> None:
    size = (1 << 32) + 40  # elements, of which the memory of a few is ever touched

    def fill(data: memoryview) -> None:
        data[-40:] = bytes(range(100, 140))

    x = et.cpu().receive((size,), et.dtypes.uint8, fill)
    at = (1 << 32) + 7
    assert x[at : at + 3].tolist() == [107, 108, 109]
    assert int(x[-1]) == 139
    index = et.array([at, -1, size - 2])
    assert et.take(x, index).tolist() == [107, 139, 138]
    assert et.jit(lambda v, i: et.dynamic_slice(v, (i,), (4,)))(x, at).tolist() == [
        107,
        108,
        109,
        110,
    ]
    assert x[:: 1 << 31][2:].tolist() == [100]
    with pytest.raises(et.errors.IndexOutOfBoundsError, match=f"index {size} is out of bounds"):
        et.take(x, et.array([size])).numpy()
    x.delete()
    et.cpu().clear_caches()


# --- messages by path


def test_messages_name_leaves_by_path() -> None:
    params = {"layer3": {"w": et.ones((2, 2)), "ids": et.array([1, 2])}}

    def loss(params: Any) -> Any:
        if params["layer3"]["w"].sum() > 0:
            return params["layer3"]["w"].sum()
        return 0.0

    with pytest.raises(et.errors.TraceError, match=r"params\['layer3'\]\['w'\] of jit\(loss\)"):
        et.jit(loss)(params)
    with pytest.raises(et.errors.DTypeError, match=r"\['layer3'\]\['ids'\] has dtype int64"):
        et.grad(loss)(params)
    with pytest.raises(et.errors.ShapeError, match=r"params\['layer3'\]\['w'\]: 2, x: 3"):
        et.vmap(lambda params, x: x)(params, et.ones(3))


# --- files: whole or not at all, and Ctrl-C


INTERRUPTED = """
import os, signal, sys
import numpy as np
import pyeffect_torch as et
from pyeffect_torch.core.files import CHUNK_BYTES
from pyeffect_torch.safetensors import files

path = sys.argv[1]
polls = []
original = files.check_cancelled

def interrupt_at_the_third_piece():
    polls.append(None)
    if len(polls) == 3:
        os.kill(os.getpid(), signal.SIGINT)
    original()

def expect_interrupt(work):
    polls.clear()
    files.check_cancelled = interrupt_at_the_third_piece
    try:
        work()
    except KeyboardInterrupt:
        assert len(polls) == 3, polls  # the signal is seen before the next piece
        return
    finally:
        files.check_cancelled = original
    raise AssertionError("finished")

big = et.compute(et.zeros((10, CHUNK_BYTES // 4)) + 1.0)
et.safetensors.save(path, {"x": et.array([1.0])})
old = open(path, "rb").read()
expect_interrupt(lambda: et.safetensors.save(path, {"x": big}))
assert open(path, "rb").read() == old
assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]

et.safetensors.save(path, {"x": big})
before = et.cpu().memory_stats()["bytes_live"]
expect_interrupt(lambda: et.safetensors.load(path))
assert et.cpu().memory_stats()["bytes_live"] == before
assert np.array_equal(et.safetensors.load(path)["x"].numpy(), big.numpy())
"""


def test_ctrl_c_is_seen_between_the_pieces_of_a_file(tmp_path: Path) -> None:
    run_python(INTERRUPTED, str(tmp_path / "model.safetensors"))


UPLOAD = """
import os, signal, threading
import numpy as np
import pyeffect_torch as et
from pyeffect_torch.core.files import CHUNK_BYTES

copied = []

class Counted(np.ndarray):
    def __getitem__(self, key):
        copied.append(None)
        if len(copied) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return super().__getitem__(key)

value = np.ones((64, CHUNK_BYTES // 8), np.float64).view(Counted)
try:
    et.cpu().upload(value)
except KeyboardInterrupt:
    assert len(copied) < 9, len(copied)
else:
    raise AssertionError("finished")
"""


def test_ctrl_c_is_seen_between_the_pieces_of_an_upload() -> None:
    run_python(UPLOAD)
