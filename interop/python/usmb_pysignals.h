/*
 * usmb_pysignals.h: the signals that a process ignored before Go came into it.
 */
#ifndef USMB_PYSIGNALS_H
#define USMB_PYSIGNALS_H

/* For a shared library: the Go runtime, which starts while the library is loaded,
   takes SIGPIPE although Python ignores it. Programs that Python starts without
   restore_signals inherit what is ignored, and lose what only has a handler. Ignores
   again what was ignored; Go is content with the error that a write then returns. */
void usmb_py_ignore_again(void);

#endif
