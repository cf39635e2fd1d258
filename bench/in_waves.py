"""Cases measured in waves: all of a wave are prepared in processes of their own at once, then timed one by one.

Compiling dominates, and takes all cores; while a case is timed nothing else uses the machine. A process that crashes, or
takes longer than it may, becomes a row that says so. A script gives `serve_worker` its prepare function, and `run` its cases."""
import json
import os
import pathlib
import selectors
import signal
import subprocess
import sys
import time
import traceback


class Worker:
    def __init__(self, script, case, folder):
        self.case, self.log = case, folder / f"{case['name']}.log"
        self.rest = b""
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([sys.executable, script, "--worker", json.dumps(case)], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        os.set_blocking(self.process.stdout.fileno(), False)

    def answer(self, deadline):
        """The next line it says, as JSON; a failure where there is none in time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.rest:
                left = deadline - time.monotonic()
                if left <= 0:
                    return {"failed": "timed out"}
                if selector.select(min(left, 1.0)):
                    read = self.process.stdout.read()
                    if read == b"":
                        return {"failed": f"ended with status {self.process.wait()}: {self.last_words()}"}
                    self.rest += read or b""
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def last_words(self):
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return " | ".join(lines[-3:])[-600:]

    def go(self):
        try:
            self.process.stdin.write(b"go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def end(self):
        """The process, and those that it started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def run(script, cases, folder, jobs, prepare_s, time_s, until=None, done=lambda row: None):
    """One row for each case, in order; cases that no wave reached before `until` say so."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for first in range(0, len(cases), jobs):
        wave = cases[first:first + jobs]
        if until is not None and time.monotonic() > until:
            wave_rows = [case | {"failed": "not reached in time"} for case in wave]
        else:
            wave_rows = run_wave(script, wave, folder, prepare_s, time_s)
        for row in wave_rows:
            rows.append(row)
            done(row)
    return rows


def run_wave(script, wave, folder, prepare_s, time_s):
    began = time.monotonic()
    workers = [Worker(script, case, folder) for case in wave]
    rows = []
    try:
        prepared = [worker.answer(began + prepare_s) for worker in workers]
        for worker, answer in zip(workers, prepared):  # what failed does not use the machine any more
            if "failed" in answer:
                worker.end()
        print(f"# prepared {len(wave)} in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        for worker, answer in zip(workers, prepared):
            if "failed" not in answer:
                worker.go()
                answer = answer | worker.answer(time.monotonic() + time_s)
                worker.end()
            rows.append(worker.case | answer)
    finally:
        for worker in workers:
            worker.end()
    return rows


def serve_worker(case, prepare):
    """What a worker does: `prepare(case)` gives facts and a function that measures, which is called when told to."""
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer

    def say(answer):
        said.write(json.dumps(answer) + "\n")
        said.flush()

    try:
        facts, measure = prepare(case)
        say(facts)
        sys.stdin.readline()
        say(measure())
    except Exception as error:  # noqa: BLE001  whatever fails is a row
        traceback.print_exc()
        say({"failed": f"{type(error).__name__}: {first_line(error)}"})


def first_line(error):
    while error.__cause__ is not None:
        error = error.__cause__
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")[:400]
