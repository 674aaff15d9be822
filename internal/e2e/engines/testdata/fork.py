"""Starts vLLM engines as forks of a process that has imported vLLM, so that an engine can restart often.

Each line of the input is a JSON object with the arguments and the environment of an engine, and the file of
its log. The answer is the engine's process group.

A request with vllm_xargs {"die": ...} ends the process that computes prompts, or the worker below it.
"""

import ctypes
import json
import multiprocessing
import os
import signal
import sys


def deadly(add_request):
    """Returns add_request of an engine that dies of some requests."""

    def add(self, request, *more):
        params = getattr(request, "sampling_params", None)
        form = ((params and params.extra_args) or {}).get("die")
        if form == "worker":
            import psutil

            for child in psutil.Process().children(recursive=True):
                if "Worker" in child.name() or "VLLM" in " ".join(child.cmdline()):
                    child.kill()
        elif form == "exit":
            os._exit(1)
        elif form:
            os.kill(os.getpid(), getattr(signal, form))
        return add_request(self, request, *more)

    return add


def main():
    import vllm.utils.system_utils as utils

    utils.get_mp_context = lambda: multiprocessing.get_context("fork")
    from vllm.entrypoints.cli.main import main as run
    import vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector  # noqa: F401
    import vllm.entrypoints.openai.api_server  # noqa: F401
    import vllm.model_executor.models.qwen2  # noqa: F401
    import vllm.v1.engine.async_llm  # noqa: F401
    import vllm.v1.worker.cpu_worker  # noqa: F401
    from vllm.v1.engine.core import EngineCore

    EngineCore.add_request = deadly(EngineCore.add_request)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        engine = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.environ.update(engine["env"])
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            log = os.open(engine["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.argv = ["vllm", *engine["args"]]
            sys.exit(run())
        print(pid, flush=True)


if __name__ == "__main__":
    main()
