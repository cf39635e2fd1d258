#!/usr/bin/env python3
"""Searches with costs of a GPU, by a driver that stands in for one (driver.cpp): its clock goes on by what is launched, so
that what is faster is known before.

search_test.py TESSERA FOLDER-OF-THE-DRIVER"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TESSERA, DRIVER = (pathlib.Path(path).resolve() for path in sys.argv[1:3])


class SearchOnAGpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache = pathlib.Path(folder.name)

    def tessera(self, *words, driver=True, **env):
        env = dict(os.environ, TESSERA_CACHE=str(self.cache), STAND_IN_QUIET="1", **env)
        if driver:
            env["LD_LIBRARY_PATH"] = str(DRIVER)
        command = [str(TESSERA), *map(str, words), "--json"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
        return done.returncode, json.loads(done.stdout)

    def optimized(self, model, *flags):
        status, done = self.tessera("optimize", HERE / model, "--search=5", "--progress", "never", *flags)
        self.assertEqual(status, 0, done)
        return done

    def expect_equal(self, done):  # to the input, by the reference
        self.assertTrue(done["check"]["outputs"])
        for output in done["check"]["outputs"]:
            self.assertLess(output["error"], 1e-4)

    def costs(self):
        return {path.name: path.read_text() for path in self.cache.glob("costs-*.txt")}

    def test_what_takes_fewer_launches_is_chosen(self):
        rules = ("--rules", HERE / "one_matrix.rules")
        done = self.optimized("one_matrix.tsr", "--target", "cuda", "--check", *rules)
        search = done["search"]
        self.assertEqual(search["device"], "stand-in")
        self.assertGreater(search["measured"], 0)
        chosen = search["candidates"][search["chosen"]]
        self.assertEqual([rule["rule"] for rule in chosen["rules"]], ["one-matrix"])
        self.assertAlmostEqual(chosen["speedup"], 2, delta=0.01)  # one launch of two, by the stand-in's clock
        self.assertAlmostEqual(chosen["seconds"], 1e-6, delta=2e-7)
        self.expect_equal(done)

    def test_costs_are_kept_by_device(self):
        self.optimized("one_matrix.tsr", "--target", "cuda", "--rules", HERE / "one_matrix.rules")
        of_gpu = self.costs()
        self.assertEqual(len(of_gpu), 1)
        again = self.optimized("one_matrix.tsr", "--target", "cuda", "--rules", HERE / "one_matrix.rules")
        self.assertEqual(again["search"]["measured"], 0)
        self.assertEqual(self.costs(), of_gpu)
        here = self.optimized("one_matrix.tsr", "--rules", HERE / "one_matrix.rules")
        self.assertEqual(here["search"]["device"], "cpu")
        self.assertGreater(here["search"]["measured"], 0)
        self.assertEqual(len(self.costs()), 2)

    def test_mutants_are_searched_to_the_end(self):
        done = self.optimized("dilated.tsr", "--mutate=60", "--target", "cuda", "--check")
        self.assertGreater(len(done["search"]["mutate"]["rules"]), 0)
        self.expect_equal(done)

    # The size of a result is known when it is computed: the processor is asked in between, and the wall's clock says
    # which is faster.
    def test_what_cannot_be_launched_at_once_is_timed_too(self):
        done = self.optimized("found_sizes.tsr", "--target", "cuda", "--rules", HERE / "one_matrix.rules")
        timed = [c for c in done["search"]["candidates"] if "seconds" in c]
        self.assertEqual(len(timed), 2)

    def test_other_commands_search_first(self):
        model = HERE / "large.tsr"
        for command in (["compile"], ["run", "--random"], ["bench", "--runs", "2", "--seconds", "0.01", "--threads", "1"]):
            flags = ["--search=2", "--target", "cuda", "--progress", "never"]
            status, done = self.tessera(command[0], model, *command[1:], *flags)
            self.assertEqual(status, 0, done)
            self.assertEqual(len(self.costs()), 1)  # kernels were timed on the GPU
            for path in self.cache.glob("costs-*.txt"):
                path.unlink()
        status, done = self.tessera("run", model, "--random", "--mutate=2")
        self.assertEqual(done["error"]["code"], "E0501")

    def test_bench_by_the_gpus_clock(self):
        model, flags = HERE / "large.tsr", ("--clock", "device", "--threads", "1", "--runs", "3", "--seconds", "0")
        status, done = self.tessera("bench", model, "--against", model, "--target", "cuda", *flags)
        self.assertEqual(status, 0, done)
        ours, other = done["measured"][0]["runners"]
        for low_or_high in ours["quartiles_s"]:  # the stand-in's clock knows no noise
            self.assertAlmostEqual(low_or_high / ours["median_s"], 1, places=4)
        self.assertAlmostEqual(other["ratio"], 1, places=4)
        status, done = self.tessera("bench", model, *flags)
        self.assertEqual(done["error"]["code"], "E0501")

    def test_errors_are_the_users(self):
        model = HERE / "one_matrix.tsr"
        for target, code, driver in (("cuda:77", "E0701", False), ("cuda:7", "E0701", True), ("sm_90", "E0603", True)):
            status, done = self.tessera("optimize", model, "--search=5", "--target", target, driver=driver)
            self.assertNotEqual(status, 0)
            self.assertEqual(done["error"]["code"], code)

    # Where it refuses a kernel, and where it does nothing more.
    def test_a_gpu_that_fails_is_an_error(self):
        words = ("optimize", HERE / "one_matrix.tsr", "--rules", HERE / "one_matrix.rules", "--search=5", "--target", "cuda")
        for fails in ("each launch", "for good"):
            status, done = self.tessera(*words, STAND_IN_FAILS=fails)
            self.assertNotEqual(status, 0)
            self.assertEqual(done["error"]["code"], "E0702")
            self.assertEqual(self.costs(), {})  # what was not measured is not kept


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
