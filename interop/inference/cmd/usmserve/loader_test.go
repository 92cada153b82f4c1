package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/usmbridge/usmbridge/internal/testenv"
)

// post sends a request of the repository extension and returns status and body.
func (r *running) post(path string) (int, string) {
	r.t.Helper()
	resp := testenv.Must(http.Post("http://"+r.addr+"/v2/repository/"+path, "application/json", nil))(r.t)
	defer resp.Body.Close()
	return resp.StatusCode, string(testenv.Must(io.ReadAll(resp.Body))(r.t))
}

// reload sends SIGHUP and waits until all models are loaded.
func (r *running) reload() {
	r.t.Helper()
	before := strings.Count(r.log.String(), "models are loaded")
	require.NoError(r.t, r.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(r.t, func() bool { return strings.Count(r.log.String(), "models are loaded") > before }, soon, 5*time.Millisecond)
}

// files writes model files into a directory.
func files(t *testing.T, dir string, texts map[string]string) {
	t.Helper()
	for name, text := range texts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".py"), []byte(header+text), 0o600))
	}
}

// counting is a model whose result is the number of its calls, and that appends a line to a file when it is imported.
func counting(log, version string) string {
	return "import numpy\nopen('" + log + "', 'a').write('" + version + "\\n')\ncalls = 0\ndef warm(): pass\n" +
		"def infer(x):\n    global calls\n    calls += 1\n    return {'y': numpy.float32([calls])}\n"
}

// TestLoadTouchesOneModel checks that a load, an unload and a failed load concern the named model, and that SIGHUP adds,
// removes and loads all models. Other models keep their state and are imported once.
func TestLoadTouchesOneModel(t *testing.T) {
	for _, workers := range []string{"0", "1"} {
		t.Run(workers+" workers", func(t *testing.T) {
			dir, logs := modelsDir(t, nil), t.TempDir()
			imports := func(name string) int {
				text, _ := os.ReadFile(filepath.Join(logs, name))
				return strings.Count(string(text), "\n")
			}
			model := func(name, version string) string { return counting(filepath.Join(logs, name), version) }
			files(t, dir, map[string]string{"a": model("a", "1"), "b": model("b", "1"),
				"uses": "from . import a\ndef infer(x): return {'y': x}\ndef warm(): pass"})
			r := start(t, "-models", dir, "-workers", workers, "-model-control")
			pids := workersOf(r)
			call := func(model string) string {
				status, body := r.infer(model, "x", 1)
				if status != http.StatusOK {
					return fmt.Sprint(status, " ", body)
				}
				return regexp.MustCompile(`"data":\[([^]]*)\]`).FindStringSubmatch(body)[1]
			}
			calls := map[string]int{}
			next := func(model string) {
				t.Helper()
				calls[model]++
				require.Equal(t, fmt.Sprint(calls[model], ".0"), call(model))
			}
			next("a")
			next("b")
			next("b")
			before := map[string]int{"a": imports("a"), "b": imports("b")}
			require.Equal(t, map[string]int{"a": 1, "b": 1}, before)

			status, body := r.post("models/a/load")
			require.Equal(t, http.StatusOK, status, body)
			calls["a"] = 0 // its state is new
			next("a")
			next("b")
			require.Equal(t, []int{2, 1}, []int{imports("a"), imports("b")})

			for name, text := range map[string]string{"raises": "raise OSError('secret')", "syntax": "def infer(:", "bad": "def infer(z): pass",
				"cold": "def infer(x): return {'y': x}\ndef warm(): raise OSError('secret')", "shape": "def infer(x): yield"} {
				files(t, dir, map[string]string{"a": text})
				status, body = r.post("models/a/load")
				require.Equal(t, http.StatusServiceUnavailable, status, name)
				require.Contains(t, body, "model a is not loaded: ")
				require.Contains(t, body, "the one that was loaded before is served")
				require.NotContains(t, body, "secret")
				next("a")
				_, index := r.post("index")
				require.Regexp(t, `{"name":"a","version":"1","state":"READY","reason":"the last load failed: `, index)
			}
			files(t, dir, map[string]string{"a": model("a", "3")})
			status, body = r.post("models/a/load")
			require.Equal(t, http.StatusOK, status, body)
			_, index := r.post("index")
			require.Contains(t, index, `{"name":"a","version":"1","state":"READY","reason":""}`)
			calls["a"] = 0
			next("a")
			status, _ = r.post("models/a/unload")
			require.Equal(t, http.StatusOK, status)
			require.Contains(t, call("a"), "it was unloaded")
			next("b")
			status, _ = r.post("models/uses/load")
			require.Equal(t, http.StatusOK, status)

			require.NoError(t, os.Remove(filepath.Join(dir, "b.py")))
			files(t, dir, map[string]string{"c": model("c", "1")})
			r.reload()
			require.Contains(t, call("b"), "404")
			calls["a"] = 0
			next("a")
			next("c")
			require.Equal(t, 1, imports("b"))
			require.Equal(t, pids, workersOf(r), "the processes stay")
			require.NoError(t, r.stop(), "%s", r.log)
			require.Contains(t, r.log.String(), "no memory is in use at the end")
		})
	}
}

// workersOf returns the process IDs of the workers of a server.
func workersOf(r *running) string {
	var all []string
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", r.cmd.Process.Pid))
	for _, task := range tasks {
		more, _ := os.ReadFile(task)
		all = append(all, strings.Fields(string(more))...)
	}
	return strings.Join(all, " ")
}

// TestRestartedWorkerLoadsCurrentModels checks that a worker that is restarted serves the models of the last loads.
func TestRestartedWorkerLoadsCurrentModels(t *testing.T) {
	text := func(value string) string {
		return "import numpy, os\ndef infer(x):\n    if x.size > 1: os._exit(1)\n    return {'y': numpy.float32([" + value + "])}\ndef warm(): pass"
	}
	dir := modelsDir(t, map[string]string{"a": text("1"), "b": text("1")})
	r := start(t, "-models", dir, "-workers", "1", "-model-control")
	files(t, dir, map[string]string{"a": text("2"), "b": text("2")})
	status, body := r.post("models/a/load")
	require.Equal(t, http.StatusOK, status, body)
	for range 2 {
		status, _ = r.infer("a", "x", 1, 2)
		require.Equal(t, http.StatusInternalServerError, status)
		for model, value := range map[string]string{"a": "2.0", "b": "1.0"} {
			status, body = r.infer(model, "x", 1)
			require.Equal(t, http.StatusOK, status, body)
			require.Contains(t, body, `"data":[`+value+`]`)
		}
	}
	require.NoError(t, r.stop(), "%s", r.log)
}

// TestHangingLoads checks that a model whose import or warm() does not end is broken after -load-timeout, at the start and
// later, while the other models are served and loaded. A file WAIT ends a thread that cannot be interrupted.
func TestHangingLoads(t *testing.T) {
	const stubborn = "import os, time\nwhile not os.path.exists('WAIT'):\n    try: time.sleep(0.001)\n    except BaseException: pass\ndef infer(x): return {'y': x}\ndef warm(): pass"
	good := "def infer(x): return {'y': x}\ndef warm(): pass"
	for name, text := range map[string]string{
		"import":   "while True: pass\n" + good,
		"warm":     "def infer(x): return {'y': x}\ndef warm():\n    while True: pass",
		"stubborn": stubborn,
	} {
		for _, workers := range []string{"0", "1"} {
			t.Run(name+" "+workers, func(t *testing.T) {
				wait := filepath.Join(t.TempDir(), "wait")
				text := strings.ReplaceAll(text, "WAIT", wait)
				dir := modelsDir(t, map[string]string{"a": good, "h": text})
				r := launch(t, "-models", dir, "-workers", workers, "-model-control", "-load-timeout", "2s")
				r.await() // the server is ready when every model is loaded, broken or past its deadline
				require.Contains(t, r.log.String(), "loading a model")
				served := func() {
					t.Helper()
					status, body := r.infer("a", "x", 1)
					require.Equal(t, http.StatusOK, status, body)
				}
				served()
				status, body := r.infer("h", "x", 1)
				require.Equal(t, http.StatusServiceUnavailable, status)
				require.Contains(t, body, "it was not loaded within 2s")
				lost := name == "stubborn" && workers == "0"
				metric := func() string {
					return regexp.MustCompile(`(?m)^usmbridge_runner_lost_threads\{runner="models"\} (\d+)$`).FindStringSubmatch(r.page("/metrics"))[1]
				}
				require.Equal(t, map[bool]string{true: "1", false: "0"}[lost], metric())
				require.NoError(t, r.cmd.Process.Signal(syscall.SIGHUP))
				require.Eventually(t, func() bool { return strings.Count(r.log.String(), `"loading a model" model=h`) == 2 }, soon, time.Millisecond)
				status, body = r.post("models/a/load")
				require.Equal(t, http.StatusOK, status, body)
				served()
				files(t, dir, map[string]string{"h": good})
				if lost {
					status, body = r.post("models/h/load")
					require.Equal(t, http.StatusServiceUnavailable, status)
					require.Contains(t, body, "an earlier load of it still runs")
					require.NoError(t, os.WriteFile(wait, nil, 0o600))
					require.Eventually(t, func() bool { return metric() == "0" }, soon, 10*time.Millisecond)
				}
				r.reload()
				status, body = r.infer("h", "x", 1)
				require.Equal(t, http.StatusOK, status, body)
				served()
				require.NoError(t, r.stop(), "%s", r.log)
			})
		}
	}
}

// TestReloadMemory checks that reloads free the memory of the former models: after each, at most one more set of weights
// is in memory than after the first load.
func TestReloadMemory(t *testing.T) {
	const weights = 64 << 20
	for _, workers := range []string{"0", "1"} {
		t.Run(workers+" workers", func(t *testing.T) {
			dir := modelsDir(t, map[string]string{"w": fmt.Sprintf("import numpy\nW = numpy.ones(%d, 'u1')\ndef infer(x): return {'y': x}\ndef warm(): pass", weights)})
			r := start(t, "-models", dir, "-workers", workers, "-model-control")
			resident := func() int {
				total := 0
				for _, pid := range append(strings.Fields(workersOf(r)), strconv.Itoa(r.cmd.Process.Pid)) {
					text, _ := os.ReadFile("/proc/" + pid + "/statm")
					pages, _ := strconv.Atoi(strings.Fields(string(text) + " 0 0")[1])
					total += pages * os.Getpagesize()
				}
				return total
			}
			first := resident()
			require.Greater(t, first, weights)
			for i := range 6 {
				if i%2 == 0 {
					r.reload()
				} else {
					status, body := r.post("models/w/load")
					require.Equal(t, http.StatusOK, status, body)
				}
				require.Less(t, resident(), first+weights+weights/2, "after reload %d", i+1)
			}
			files(t, dir, map[string]string{"w": fmt.Sprintf("import numpy\nW = numpy.ones(%d, 'u1')\nraise OSError", weights)})
			for range 4 {
				status, _ := r.post("models/w/load")
				require.Equal(t, http.StatusServiceUnavailable, status)
				require.Less(t, resident(), first+weights/2, "failed loads")
			}
			status, _ := r.post("models/w/unload")
			require.Equal(t, http.StatusOK, status)
			require.Eventually(t, func() bool { return resident() < first-weights/2 }, soon, 10*time.Millisecond)
			require.NoError(t, r.stop(), "%s", r.log)
		})
	}
}
