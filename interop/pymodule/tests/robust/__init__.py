"""Fuzzing with oracles: valid objects must be imported correctly, invalid ones must be refused with the right error, and
the process must not end.

Each file test_*.py covers one surface. A target is a function of an example that raises an error if the module and the
model in oracles.py disagree. Examples are literals (strategies.py), which can be printed, read and run again. As tests
the targets run a few hundred examples each, always the same. To hunt, run in the directory above this one:

    ../../../bin/usmpython -m robust                          every target for USMBRIDGE_FUZZ_SECONDS (60)
    ../../../bin/usmpython -m robust --seconds 1200 views     one target, twenty minutes
    ../../../bin/usmpython -m robust --replay views FILE      one example again, from a finding

Each target runs in a process of its own. If the process dies, its last example is a finding: a journal in shared memory
has it. With the address sanitizer:

    go build -asan -o bin/usmpython-asan ./interop/cmd/usmpython
    cd interop/pymodule/tests && env PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1 \\
        LD_LIBRARY_PATH=$VIRTUAL_ENV/lib LD_PRELOAD=$(realpath $(cc -print-file-name=libstdc++.so.6)) \\
        ../../../bin/usmpython-asan -m robust

PYTHONMALLOC makes small blocks visible to the sanitizer, which Python otherwise allocates itself."""
