package rest

import (
	"testing"

	"github.com/usmbridge/usmbridge/memmgr/memtest"
)

func TestMain(m *testing.M) { memtest.Main(m) }
