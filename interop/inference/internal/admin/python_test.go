package admin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// TestMetricsInPython checks that the Python package prometheus_client parses the metrics in both
// formats, with the same types as in this package.
func TestMetricsInPython(t *testing.T) {
	packages := filepath.Join(testenv.Root(), "bin", "tritonclient")
	if _, err := os.Stat(filepath.Join(packages, "prometheus_client")); err != nil {
		testenv.Missing(t, "prometheus_client is not installed; make test-nested puts it into bin/tritonclient", testenv.Peers)
	}
	python := "python3"
	if venv := os.Getenv("VIRTUAL_ENV"); venv != "" {
		python = filepath.Join(venv, "bin", "python")
	}
	s := newService(t)
	require.NoError(t, s.request("identity", 1000))
	require.Error(t, s.request("failing", 10))
	cmd := exec.Command(python, "-c", `
import sys, urllib.request
sys.path.insert(0, sys.argv[2])
from prometheus_client import openmetrics, parser
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open

def families(parse, accept):
    request = urllib.request.Request(sys.argv[1] + "/metrics", headers={"Accept": accept})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return {f.name: f for f in parse(answer.read().decode())}

for parse, accept in (parser.text_string_to_metric_families, "text/plain"), (parse_open, "application/openmetrics-text; version=1.0.0"):
    found = families(parse, accept)
    assert found["inference_requests"].type == "counter", found["inference_requests"]
    assert found["inference_requests_in_flight"].type == "gauge"
    duration = found["inference_request_duration_seconds"]
    assert duration.type == "histogram"
    counts = {s.labels["model"]: s.value for s in duration.samples if s.name.endswith("_count")}
    assert counts == {"identity": 1, "sum": 0, "failing": 1}, counts
    assert {"inference", "calls"} <= {s.labels["pool"] for s in found["usmbridge_memory_reserved_bytes"].samples}
    refused = {s.labels["kind"]: s.value for s in found["inference_refusals"].samples if s.name.endswith("_total")}
    assert refused["internal"] == 1 and refused["not found"] == 0, refused
    assert all(f.documentation for f in found.values())
print("read", len(found))
`, s.url, packages)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.True(t, strings.HasPrefix(string(out), "read "), string(out))
}
