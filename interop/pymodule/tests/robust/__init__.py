"""Fuzzing with oracles: what must be taken is taken and says the truth, what must be refused is refused with the
right error, and nothing ends the process.

Each file test_*.py is one surface; its targets are functions from an example to nothing that raise where the module and
the model of oracles.py disagree. Examples are plain literals (strategies.py), so that any of them can be printed, read
back and run again. As tests they run a few hundred examples each, always the same ones. To hunt, from the directory
above this one:

    ../../../bin/usmpython -m robust                          every target for USMBRIDGE_FUZZ_SECONDS (60)
    ../../../bin/usmpython -m robust --seconds 1200 views     one target, twenty minutes
    ../../../bin/usmpython -m robust --replay views FILE      one example again, from a finding

Each target runs in a process of its own, which may die: the example that it was at is in a journal in shared memory
and becomes a finding. An interrupted hunt goes on where it was when it is started again with the same --results.
With the address sanitizer:

    go build -asan -o bin/usmpython-asan ./interop/cmd/usmpython
    cd interop/pymodule/tests && env PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1 \\
        LD_LIBRARY_PATH=$VIRTUAL_ENV/lib LD_PRELOAD=$(realpath $(cc -print-file-name=libstdc++.so.6)) \\
        ../../../bin/usmpython-asan -m robust

PYTHONMALLOC shows the sanitizer the small blocks too, which Python would keep to itself.
"""
