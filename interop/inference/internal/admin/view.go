package admin

// view is what the page shows at one moment.
type view struct {
	Server     serverView    `json:"server"`
	Uptime     float64       `json:"uptime"` // seconds
	Live       string        `json:"live"`   // why not; "" when it is
	Ready      string        `json:"ready"`
	Rate       *float64      `json:"rate"` // requests a second; null at first
	FailedRate *float64      `json:"failed_rate"`
	P50        *float64      `json:"p50"` // seconds; null when there were no requests
	P99        *float64      `json:"p99"`
	InFlight   int           `json:"in_flight"`
	Most       int           `json:"most"`
	Waiting    int           `json:"waiting"`
	CopiedRate *float64      `json:"copied_rate"` // bytes a second
	Memory     *memoryView   `json:"memory"`
	Calls      *poolView     `json:"calls"` // null: no pool of their own
	Models     []modelView   `json:"models"`
	Tenants    []tenantView  `json:"tenants"`
	AllTenants int           `json:"all_tenants"` // of which Tenants are the largest
	Workers    []workerView  `json:"workers"`
	Refused    []refusedView `json:"refused"`
	Regions    *regionView   `json:"regions"` // null: not served
}

type serverView struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

type modelView struct {
	Name   string     `json:"name"`
	Ready  string     `json:"ready"` // why not
	Rate   *float64   `json:"rate"`
	P50    *float64   `json:"p50"`
	P99    *float64   `json:"p99"`
	Served uint64     `json:"served"`
	Failed uint64     `json:"failed"`
	Kept   uint64     `json:"kept"`   // requests of whose memory the model kept something
	Stages [4]float64 `json:"stages"` // seconds of queue, input, infer, output, so far
}

type tenantView struct {
	Name     string `json:"name"`
	Requests int    `json:"requests"`
	Bytes    uint64 `json:"bytes"`
}

type workerView struct {
	Name     string  `json:"name"`
	State    string  `json:"state"`
	Running  *int    `json:"running"` // null: not known of it alone
	Waiting  *int    `json:"waiting"`
	Calls    uint64  `json:"calls"`
	Failed   *uint64 `json:"failed"`
	Restarts *uint64 `json:"restarts"` // null: it is not a process of its own
}

type refusedView struct {
	Kind     string `json:"kind"`
	Requests uint64 `json:"requests"`
}

// regionView is all regions together: the name of one gives its memory to whoever knows it.
type regionView struct {
	Count int    `json:"count"`
	Bytes uint64 `json:"bytes"`
	Uses  int    `json:"uses"`
}

// historyView is what the lines of a page that is opened begin with.
type historyView struct {
	Rate   []*float64 `json:"rate"`
	P50    []*float64 `json:"p50"`
	P99    []*float64 `json:"p99"`
	Flight []*float64 `json:"flight"`
	Used   []*float64 `json:"used"`
}

// kept is how many seconds the lines show.
const kept = 120

func (h *historyView) add(v *view) {
	put := func(line *[]*float64, value *float64) {
		*line = append(*line, value)
		if len(*line) > kept {
			*line = (*line)[1:]
		}
	}
	flight := float64(v.InFlight)
	put(&h.Rate, v.Rate)
	put(&h.P50, v.P50)
	put(&h.P99, v.P99)
	put(&h.Flight, &flight)
	var used *float64
	if v.Memory != nil {
		bytes := float64(v.Memory.Allocated)
		used = &bytes
	}
	put(&h.Used, used)
}
