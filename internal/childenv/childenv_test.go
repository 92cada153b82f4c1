package childenv_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/childenv"
)

func TestAbsolute(t *testing.T) {
	for _, c := range []struct{ is, stays []string }{
		{nil, nil},
		{[]string{"HOME=/h", "PATHS=.:x", "A=b=c:"}, []string{"HOME=/h", "PATHS=.:x", "A=b=c:"}},
		{[]string{"PATH=/bin:/usr/bin"}, []string{"PATH=/bin:/usr/bin"}},
		{[]string{"PATH=:/bin::.:x/y:/usr/bin:"}, []string{"PATH=/bin:/usr/bin"}},
		{[]string{"PYTHONPATH=:/a", "LD_LIBRARY_PATH=/b:"}, []string{"PYTHONPATH=/a", "LD_LIBRARY_PATH=/b"}},
		{[]string{"PYTHONPATH=", "LD_LIBRARY_PATH=.", "PATH=bin"}, nil},
	} {
		require.Equal(t, c.stays, childenv.Absolute(c.is), "%q", c.is)
	}
}
