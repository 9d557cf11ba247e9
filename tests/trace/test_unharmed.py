"""arm() must never end a script, slow it down, fill its memory, or change what it does."""


def test_without_room_the_script_runs_as_without_with_one_warning(script, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("no folder")
    done = script(
        """
        import os
        from oddrank import job
        job.base_folders = lambda: [__import__("pathlib").Path(os.environ["ODDRANK_DIR"])]
        import oddrank
        oddrank.arm()
        oddrank.step(1)
        with oddrank.section("data"):
            oddrank.mark("here")
        print("ran")
        """,
        ODDRANK_DIR=str(blocked),
    )
    assert done.stdout == "ran\n"
    assert done.stderr.count("RuntimeWarning: oddrank records nothing") == 1


def test_python_behaves_as_without(script):
    source = """
        {arm}
        import sys, traceback
        def fails(n):
            if n == 0:
                raise ValueError("deep")
            fails(n - 1)
        def generator():
            try:
                yield 1
            finally:
                print("closed")
        try:
            fails(3)
        except ValueError:
            print(traceback.format_exc())
        for _ in generator():
            break
        def deep(n):
            return 0 if n == 0 else 1 + deep(n - 1)
        try:
            deep(10**6)
        except RecursionError as error:
            print(type(error))
        exec("x = [i for i in range(3)]\\nprint(x)")
    """
    armed = script(source.format(arm="import oddrank; oddrank.arm()"))
    plain = script(source.format(arm="pass"))
    assert armed.stdout == plain.stdout
    assert armed.stderr == plain.stderr == ""


def test_a_child_without_room_runs_with_threads_as_without(script):
    done = script(
        """
        import multiprocessing, os, pathlib, shutil, threading
        import oddrank
        oddrank.arm()
        folder = pathlib.Path(os.environ["ODDRANK_DIR"])
        shutil.rmtree(folder)
        folder.write_text("nothing can be made here")
        def work(n):
            return n if n == 0 else work(n - 1)
        def child():
            threads = [threading.Thread(target=work, args=(20,)) for _ in range(3)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        print(process.exitcode)
        """,
        TMPDIR="/proc/none",
    )
    assert done.stdout == "0\n"


def test_of_workers_that_come_and_go_the_last_few_records_stay(script):
    script(
        """
        import multiprocessing
        import oddrank
        oddrank.arm()
        def child():
            pass
        for _ in range(8):
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            process.join()
        """
    )
    children = [rank for rank in script.records() if rank.is_child]
    assert 3 <= len(children) <= 5


def test_files_of_the_user_beside_the_records_are_left_alone(script):
    names = ["profiles/step.trace", "profiles/rank0-1-2.trace", "script/rank0-stdout.log"]
    names += [f"job{i}/rank0-{i}-1.trace" for i in range(6)]
    for name in names:
        file = script.folder / "records" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
        file.parent.chmod(0o700)
    (script.folder / "records").chmod(0o700)
    launched = {
        "TORCHELASTIC_RUN_ID": "script", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
    }  # fmt: skip
    for _ in range(6):
        script("\nimport oddrank\noddrank.arm()\n", **launched)
    assert all((script.folder / "records" / name).read_text() == "mine" for name in names)
    # The job started six times; only the newest few records are left.
    assert 3 <= len(list((script.folder / "records" / "script").glob("*.trace"))) <= 4


def test_arming_again_and_again_leaves_nothing_behind_in_the_import_system(script):
    done = script(
        """
        import sys
        import oddrank
        with oddrank.arm():
            before = len(sys.meta_path)
        for _ in range(20):
            with oddrank.arm():
                pass
        print(len(sys.meta_path) - before)
        """
    )
    assert done.stdout == "0\n"


def test_deep_recursion_costs_no_walk_of_the_stack_at_every_call(script):
    done = script(
        """
        import sys, threading, time
        import oddrank
        from oddrank import _native
        armed = oddrank.arm()
        sys.setrecursionlimit(10**6)
        def deep(n):
            return 0 if n == 0 else deep(n - 1)
        def ratio():
            times = []
            for n in (20_000, 120_000):
                begin = time.thread_time()
                deep(n)
                times.append((time.thread_time() - begin) / n)
            print(times[1] / times[0] < 20)
        threading.stack_size(512 << 20)
        thread = threading.Thread(target=ratio)
        thread.start()
        thread.join()
        """
    )
    assert done.stdout == "True\n"
