package admin

import (
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/usmbridge/usmbridge/interop/inference/internal/engine"
	"github.com/usmbridge/usmbridge/interop/inference/internal/oip"
	"github.com/usmbridge/usmbridge/interop/workers"
)

// writeStatus writes the status page.
func writeStatus(w http.ResponseWriter, e *engine.Engine) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	server, stats := e.Server(), e.Stats()
	fmt.Fprintf(t, "%s %s\n\n", server.Name, server.Version)
	fmt.Fprintf(t, "ready\t%s\nlive\t%s\n", state(e.Ready()), state(e.Live()))
	fmt.Fprintf(t, "requests in flight\t%d\nrequests waiting\t%d\ntenants\t%d\n", stats.Requests, stats.Waiting, len(stats.Tenants))
	for kind, n := range stats.Refused {
		if n > 0 {
			fmt.Fprintf(t, "refused: %s\t%d\n", oip.Kind(kind), n)
		}
	}

	fmt.Fprint(t, "\nmodel\tversion\tready\tserved\tfailed\tmean time\n")
	for _, m := range e.Models() {
		s := m.Stats()
		mean := time.Duration(s.Success.NS / max(s.Success.Count, 1))
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%v\n", s.Name, s.Version, state(m.Ready()), s.Success.Count, s.Fail.Count, mean.Round(time.Microsecond))
	}

	fmt.Fprint(t, "\nmemory (bytes)\tallocated\treserved\tpeak\tlimit\n")
	for _, p := range e.Pools() {
		s := p.Stats()
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\n", p.Name(), s.AllocatedBytes.Current, s.ReservedBytes.Current, s.ReservedBytes.Peak, p.Limit)
	}
	regions, bytes, leases := e.Regions().InUse()
	fmt.Fprintf(t, "\nshared memory\t%d regions\t%d bytes\t%d leases\n", regions, bytes, leases)

	if pool, ok := e.Runner().(*workers.Pool); ok {
		fmt.Fprint(t, "\nworker\tprocess\tstate\tcalls\trestarts\n")
		for _, p := range pool.Workers() {
			fmt.Fprintf(t, "%d\t%d\t%s\t%d\t%d\n", p.Index, p.PID, p.State, p.Calls, p.Restarts)
		}
	}
	fmt.Fprint(t, "\nMetrics are at /metrics, profiles at /debug/pprof/, the blocks of the pool at /debug/memory.json.\n")
	_ = t.Flush() // fails only if the client is gone
}

// state returns "yes", or the reason.
func state(err error) string {
	if err == nil {
		return "yes"
	}
	return "no: " + oip.As(err).Message
}
