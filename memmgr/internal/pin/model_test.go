package pin

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A model of the protocol between goroutines that hold shards and goroutines that stop them, on x86 processors: stores
// wait in a buffer of the processor in order, and loads pass them. The checker visits each state that any interleaving
// reaches, with the kernel refusing the barrier from any moment on.
//
// The model has holders, each pinned to a P with a shard in every pool, and one
// stopper for each pool. A holder works on one of its shards at a time.

const (
	modelHolders = 2
	modelPools   = 2
)

// The state of a holder.
const (
	outside  = iota // at a safe point, not pinned
	pinned          // and about to ask whether it must fence
	marking         // about to store busy
	checking        // about to load stop
	working         // in the shard
	leaving         // has written to the shard, about to clear busy
	backing         // found stop set, about to clear busy
)

// The state of a stopper.
const (
	idle     = iota
	fencing  // has set stop
	turning  // the barrier was refused: about to clear expedited
	waiting  // for all holders to pass a safe point
	telling  // about to record that all holders have passed one
	looking  // whether shards are busy
	stopping // in the shards
)

// The words of memory: for each pool and holder busy and the data of the shard, for each pool stop, then expedited.
type modelMemory struct {
	busy, data [modelPools][modelHolders]uint8
	stop       [modelPools]uint8
	expedited  uint8
}

// store is a store that waits in a buffer.
type store struct{ word, pool, value uint8 }

const (
	wordBusy = 1
	wordData = 2
)

type modelHolder struct {
	at, pool, fences uint8
	n                uint8
	buffer           [4]store
}

type modelStopper struct {
	at, next uint8               // next: the holder to look at
	seen     [modelHolders]uint8 // busy as it was read, for a mutant
}

// modelState is comparable: the checker keeps the set of visited states.
type modelState struct {
	memory   modelMemory
	holders  [modelHolders]modelHolder
	stoppers [modelPools]modelStopper
	refused  bool // the kernel refuses from here on
	done     bool // all holders fence
	turner   uint8
}

// mutant is an error in the protocol that the checker must find.
type mutant struct {
	noBarrier     bool // the stopper makes no holder pass a barrier
	noCheck       bool // the holder does not check stop
	noSafePoint   bool // after a refusal the stopper does not wait for safe points
	earlyLook     bool // busy is read before the barrier
	othersHurry   bool // a second stopper that reads expedited as cleared does not wait for done
	clearFirst    bool // busy is cleared before the last write to the shard
	noFenceAtAll  bool // the holder never fences
	panicsInstead bool // the refusal is ignored
}

type model struct {
	mutant  mutant
	pools   int
	holders int
	seen    map[modelState]bool
	queue   []modelState
	broken  string
	reached map[string]bool
}

func (m *model) add(s modelState) {
	if !m.seen[s] {
		m.seen[s] = true
		m.queue = append(m.queue, s)
	}
}

func (m *model) run() {
	m.seen, m.reached = map[modelState]bool{}, map[string]bool{}
	start := modelState{turner: modelPools}
	start.memory.expedited = 1
	m.add(start)
	for len(m.queue) > 0 && m.broken == "" {
		s := m.queue[len(m.queue)-1]
		m.queue = m.queue[:len(m.queue)-1]
		m.step(s)
	}
}

// step adds the successor states.
func (m *model) step(s modelState) {
	if !s.refused {
		next := s
		next.refused = true
		m.add(next)
	}
	for h := range m.holders {
		if s.holders[h].n > 0 {
			next := s
			next.drain(h)
			m.add(next)
		}
		m.hold(s, h)
	}
	for p := range m.pools {
		m.stop(s, p)
	}
}

// drain writes the oldest store of a holder's processor to memory.
func (s *modelState) drain(h int) {
	b := &s.holders[h]
	first := b.buffer[0]
	copy(b.buffer[:], b.buffer[1:])
	b.n--
	b.buffer[b.n] = store{}
	switch first.word {
	case wordBusy:
		s.memory.busy[first.pool][h] = first.value
	case wordData:
		s.memory.data[first.pool][h] = first.value
	}
}

// barrier empties all buffers.
func (s *modelState) barrier() {
	for h := range s.holders {
		for s.holders[h].n > 0 {
			s.drain(h)
		}
	}
}

func (b *modelHolder) put(st store) bool {
	if int(b.n) == len(b.buffer) {
		return false // waits until there is room
	}
	b.buffer[b.n] = st
	b.n++
	return true
}

// hold is one step of a holder.
func (m *model) hold(s modelState, h int) {
	b := &s.holders[h]
	switch b.at {
	case outside:
		for p := range m.pools {
			next := s
			next.holders[h].at, next.holders[h].pool = pinned, uint8(p)
			m.add(next)
		}
		return
	case pinned:
		b.fences = 1 - s.memory.expedited
		if m.mutant.noFenceAtAll {
			b.fences = 0
		}
		b.at = marking
	case marking:
		if !b.put(store{wordBusy, b.pool, 1}) {
			return
		}
		if b.fences != 0 {
			for b.n > 0 {
				s.drain(h)
			}
		}
		b.at = checking
	case checking:
		b.at = working
		if s.memory.stop[b.pool] != 0 && !m.mutant.noCheck {
			b.at = backing
		}
	case working:
		m.reached["a holder works"] = true
		if b.fences != 0 {
			m.reached["a holder works behind its own fence"] = true
		}
		if s.stoppers[b.pool].at == stopping {
			m.broken = fmt.Sprintf("holder and stopper in one shard: %+v", s)
		}
		if m.mutant.clearFirst {
			// Its data are written with busy cleared already.
			if !b.put(store{wordBusy, b.pool, 0}) {
				return
			}
			b.at = leaving
			break
		}
		if !b.put(store{wordData, b.pool, 1}) {
			return
		}
		b.at = leaving
	case leaving:
		last := store{wordBusy, b.pool, 0}
		if m.mutant.clearFirst {
			last = store{wordData, b.pool, 1}
		}
		if !b.put(last) {
			return
		}
		b.at = outside
	case backing:
		if !b.put(store{wordBusy, b.pool, 0}) {
			return
		}
		b.at = outside
	}
	b.forget()
	m.add(s)
}

// forget clears values that a holder outside cannot know, so that equal states are one state.
func (b *modelHolder) forget() {
	if b.at == outside {
		b.pool, b.fences = 0, 0
	}
}

// stop is one step of a stopper; its own stores are locked instructions.
func (m *model) stop(s modelState, p int) {
	t := &s.stoppers[p]
	switch t.at {
	case idle:
		s.memory.stop[p] = 1
		t.at = fencing
		if m.mutant.earlyLook {
			t.seen = s.memory.busy[p]
		}
	case fencing:
		switch {
		case s.done, m.mutant.noBarrier:
			t.at = looking
		case m.mutant.othersHurry && s.memory.expedited == 0:
			t.at = looking
		case m.mutant.panicsInstead && s.refused:
			t.at = looking
		case !s.refused:
			m.reached["the barrier is taken"] = true
			s.barrier()
			t.at = looking
		case s.turner == modelPools: // else another has the lock
			s.turner = uint8(p)
			t.at = turning
		default:
			return
		}
	case turning:
		t.at = waiting
		s.memory.expedited = 0
	case waiting:
		if !m.mutant.noSafePoint {
			for h := range m.holders {
				if s.holders[h].at != outside {
					return
				}
			}
			s.barrier()
		}
		t.at = telling
	case telling:
		m.reached["everybody fences"] = true
		s.done, s.turner = true, modelPools
		t.at = looking
	case looking:
		busy := s.memory.busy[p][t.next]
		if m.mutant.earlyLook {
			busy = t.seen[t.next]
			t.seen[t.next] = s.memory.busy[p][t.next] // it looks again if it must
		}
		if busy != 0 {
			m.add(s)
			return
		}
		if t.next++; int(t.next) == m.holders {
			t.next, t.seen = 0, [modelHolders]uint8{}
			t.at = stopping
		}
	case stopping:
		m.reached["a stopper works"] = true
		for h := range m.holders {
			b := &s.holders[h]
			inside := (b.at == working || b.at == leaving) && int(b.pool) == p
			for _, st := range b.buffer[:b.n] {
				inside = inside || st.word == wordData && int(st.pool) == p
			}
			if inside {
				m.broken = fmt.Sprintf("a stopper works while holder %d writes: %+v", h, s)
			}
			s.memory.data[p][h] = 0
		}
		s.memory.stop[p] = 0
		t.at = idle
	}
	m.add(s)
}

func TestFenceProtocol(t *testing.T) {
	for name, size := range map[string][2]int{"two holders": {2, 1}, "two pools": {1, 2}} {
		m := model{holders: size[0], pools: size[1]}
		m.run()
		require.Empty(t, m.broken, name)
		for _, what := range []string{
			"a holder works", "a holder works behind its own fence", "a stopper works",
			"the barrier is taken", "everybody fences",
		} {
			require.True(t, m.reached[what], "%s: no state in which %s", name, what)
		}
		t.Logf("%s: %d states", name, len(m.seen))
	}
}

// The checker finds the error in each of these.
func TestFenceProtocolMutantsAreFound(t *testing.T) {
	for name, wrong := range map[string]mutant{
		"no barrier":                          {noBarrier: true},
		"no second look at stop":              {noCheck: true},
		"a switch without a safe point":       {noSafePoint: true},
		"busy read before the barrier":        {earlyLook: true},
		"a second pool that does not wait":    {othersHurry: true},
		"busy cleared before the last write":  {clearFirst: true},
		"a holder that does not fence":        {noFenceAtAll: true},
		"a refusal that is taken for nothing": {panicsInstead: true},
	} {
		found := false
		for _, size := range [][2]int{{2, 1}, {1, 2}} {
			m := model{mutant: wrong, holders: size[0], pools: size[1]}
			m.run()
			found = found || m.broken != ""
		}
		require.True(t, found, "not found: %s", name)
	}
}
