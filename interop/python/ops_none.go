//go:build !(linux && cgo)

package python

// Without cgo and on systems other than Linux, no interpreter can be loaded. Every
// operation returns errors.ErrUnsupported.

var none = ret{code: codeUnsupported}

// FromResult returns errors.ErrUnsupported on this platform.
func FromResult(ptr) (*Object, error) { return nil, errUnsupported }

type callRecord struct{}

func (*callRecord) fromC() uint64 { return 0 }

func retAt(ptr) ret { return none }

func opCallContext(*callRecord, ptr, []ptr, int, ptr) ret { return none }
func opInterrupt(*callRecord)                             {}
func opHoldsGIL() bool                                    { return false }
func opCurrentCall() *callRecord                          { return nil }

func opEnter() ret                                 { return none }
func opLeave(int64)                                {}
func opSuspend() ptr                               { return nil }
func opResume(ptr)                                 {}
func opIncref(ptr) ret                             { return none }
func opDecref(ptr)                                 {}
func opDecrefLater(ptr)                            {}
func opAlive() bool                                { return false }
func opInChild() bool                              { return false }
func opGone() bool                                 { return false }
func opNone() ptr                                  { return nil }
func opTrue() ptr                                  { return nil }
func opFalse() ptr                                 { return nil }
func opLen(ptr) ret                                { return none }
func opIter(ptr) ret                               { return none }
func opNext(ptr) ret                               { return none }
func opView(ptr) ret                               { return none }
func opIndex(ptr) ret                              { return none }
func opFloat(ptr) ret                              { return none }
func opBuiltins() ret                              { return none }
func opDetachError(ptr)                            {}
func opRaise(ptr)                                  {}
func opGetAttr(ptr, string) ret                    { return none }
func opSetAttr(ptr, string, ptr) ret               { return none }
func opGetItem(_, _ ptr) ret                       { return none }
func opSetItem(_, _, _ ptr) ret                    { return none }
func opItems(ptr, []ptr) ret                       { return none }
func opDictItems(ptr, []ptr) ret                   { return none }
func opFromInt(int64) ret                          { return none }
func opFromFloat(float64) ret                      { return none }
func opFromText(string) ret                        { return none }
func opFromBytes([]byte) ret                       { return none }
func opFromHex(string) ret                         { return none }
func opFromNames([]ptr) ret                        { return none }
func opFromWords([]uint64) ret                     { return none }
func opErrorHandle(ptr) ret                        { return none }
func opCall(ptr, []ptr, int, ptr) ret              { return none }
func opMethod(string, []ptr, int, ptr) ret         { return none }
func opText(ptr, int) (string, ret)                { return "", none }
func opErrorPart(ptr, int) string                  { return "" }
func opImport(string) ret                          { return none }
func opRun(string, string, int, ptr) ret           { return none }
func opNewError(string, string, uintptr, ptr) ret  { return none }
func opFunction(uintptr, string, string) ret       { return none }
func addModule(string, ptr) error                  { return errUnsupported }
func start(*options) (*Interpreter, error)         { return nil, errUnsupported }
func runMain(*Environment, []string, string) error { return errUnsupported }
