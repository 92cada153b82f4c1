package report

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/usmbridge/usmbridge/memmgr"
)

// Opcodes of Python's pickle protocol 2, from CPython's Lib/pickletools.py.
const (
	pickleProto     = 0x80
	pickleStop      = '.'
	pickleMark      = '('
	pickleEmptyDict = '}'
	pickleSetItems  = 'u'
	pickleEmptyList = ']'
	pickleAppends   = 'e'
	pickleUnicode   = 'X'
	pickleInt       = 'J'
	pickleLong      = 0x8a
	pickleTrue      = 0x88
	pickleFalse     = 0x89
	pickleNone      = 'N'
	picklePut       = 'r'
	pickleGet       = 'j'
)

// WritePickle writes a snapshot of a pool as a pickle of the structure that WriteJSON
// writes: the file that PyTorch's memory viewer opens.
func WritePickle(w io.Writer, s *memmgr.Snapshot) error {
	p := pickler{w: bufio.NewWriter(w), strings: map[string]uint32{}}
	p.bytes(pickleProto, 2)
	p.value(tree(s))
	p.bytes(pickleStop)
	if p.err != nil {
		return p.err
	}
	return p.w.Flush()
}

// pickler writes values; strings that repeat are written once.
type pickler struct {
	w       *bufio.Writer
	strings map[string]uint32
	err     error
}

func (p *pickler) bytes(b ...byte) {
	// bufio keeps the first error for Flush.
	_, _ = p.w.Write(b)
}

func (p *pickler) value(v any) {
	switch v := v.(type) {
	case []field:
		p.bytes(pickleEmptyDict, pickleMark)
		for _, f := range v {
			p.string(f.key)
			p.value(f.value)
		}
		p.bytes(pickleSetItems)
	case []any:
		p.bytes(pickleEmptyList, pickleMark)
		for _, each := range v {
			p.value(each)
		}
		p.bytes(pickleAppends)
	case string:
		p.string(v)
	case int64:
		p.int(v)
	case bool:
		if v {
			p.bytes(pickleTrue)
		} else {
			p.bytes(pickleFalse)
		}
	case nil:
		p.bytes(pickleNone)
	default:
		p.err = fmt.Errorf("report: a snapshot cannot hold a %T", v)
	}
}

func (p *pickler) string(s string) {
	if at, ok := p.strings[s]; ok {
		p.bytes(pickleGet)
		p.bytes(binary.LittleEndian.AppendUint32(nil, at)...)
		return
	}
	at := uint32(len(p.strings))
	p.strings[s] = at
	p.bytes(pickleUnicode)
	p.bytes(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))...)
	_, _ = p.w.WriteString(s)
	p.bytes(picklePut)
	p.bytes(binary.LittleEndian.AppendUint32(nil, at)...)
}

func (p *pickler) int(v int64) {
	if v == int64(int32(v)) {
		p.bytes(pickleInt)
		p.bytes(binary.LittleEndian.AppendUint32(nil, uint32(v))...)
		return
	}
	p.bytes(pickleLong, 8)
	p.bytes(binary.LittleEndian.AppendUint64(nil, uint64(v))...)
}
