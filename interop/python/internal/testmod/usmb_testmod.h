#ifndef USMB_TESTMOD_H
#define USMB_TESTMOD_H
void *usmb_testmod_init(void);
int usmb_testmod_drains(void);
int usmb_testmod_exits(void);
void usmb_testmod_drop_on_thread(void *object);
#endif
