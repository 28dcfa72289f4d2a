package acceptance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/run"
)

// Inputs that broke other products, and the right answer to each.
func TestHostileScripts(t *testing.T) {
	d := begin(t)
	limit := func(d string) run.Options { return run.Options{Timeout: d} }
	for _, c := range []struct {
		name    string
		source  string
		options run.Options
		check   func(t *testing.T, r run.Result)
	}{
		// Choosing the interpreter.
		{"CRLF shebang and body", "#!/bin/bash\r\necho hi\r\n", run.Options{}, func(t *testing.T, r run.Result) {
			require.Equal(t, "hi\n", r.Stdout)
			require.True(t, warned(r, "CRLF"), "%v", r.Logs)
		}},
		{"BOM", "\ufeff#!/usr/bin/env python3\nprint('hi')\n", run.Options{}, stdout("hi\n")},
		{"env -S", "#!/usr/bin/env -S python3 -u\nprint('hi')", run.Options{}, stdout("hi\n")},
		{"env with an argument and no -S", "#!/usr/bin/env python3 -u\nprint('hi')", run.Options{}, stdout("hi\n")},
		{"shebang wins over runtime", "#!/usr/bin/env python3\nprint('py')", run.Options{Runtime: "bash"}, func(t *testing.T, r run.Result) {
			require.Equal(t, "py\n", r.Stdout)
			require.Equal(t, "python3", r.Runtime)
			require.True(t, warned(r, "bash"), "%v", r.Logs)
		}},
		{"no newline after the shebang", "#!/bin/bash", run.Options{}, stdout("")},
		{"runtime option", "print('x')", run.Options{Runtime: "python3 -u"}, stdout("x\n")},
		{"TypeScript without any hint", "const x: number = 41; console.log(x + 1)", run.Options{}, stdout("42\n")},
		{"env value of 100 KB", "#!/bin/bash\necho ${#BIG}", run.Options{Env: map[string]string{"BIG": strings.Repeat("x", 100<<10)}}, stdout("102400\n")},

		// Output.
		{"a rune in two writes", "#!/usr/bin/env python3\nimport os,time\nos.write(1,b'\\xe2'); time.sleep(.2); os.write(1,b'\\x89\\xa4')", run.Options{}, stdout("≤")},
		{"no newline at the end", "#!/bin/bash\nprintf 'a\\nb'", run.Options{}, stdout("a\nb")},
		{"output before the limit is kept", "#!/usr/bin/env python3\nimport time\nprint('A', flush=True)\ntime.sleep(99)", limit("2s"), func(t *testing.T, r run.Result) {
			require.Equal(t, run.TimedOut, r.State)
			require.True(t, r.TimedOut)
			require.Equal(t, "A\n", r.Stdout)
		}},
		{"UTF-8 locale", "#!/usr/bin/env python3\nprint('Hello, 世界')", run.Options{}, stdout("Hello, 世界\n")},
		{"yes", "#!/bin/bash\nyes", limit("5s"), func(t *testing.T, r run.Result) {
			require.Contains(t, []run.State{run.TimedOut, run.OutputLimit}, r.State)
			require.True(t, r.Truncated)
			require.Equal(t, r.StdoutBytes-int64(len(r.Stdout)), r.DroppedBytes)
		}},
		{"500 MB", "#!/bin/bash\nhead -c 500000000 /dev/zero", run.Options{}, func(t *testing.T, r run.Result) {
			require.Equal(t, run.OutputLimit, r.State)
			require.Equal(t, run.CodeOutputLimit, r.Error.Code)
			require.True(t, r.Truncated)
		}},
		{"binary", "#!/bin/bash\nprintf '\\xff\\x00'", run.Options{}, func(t *testing.T, r run.Result) {
			require.Equal(t, "/wA=", r.Stdout)
			require.Equal(t, "base64", r.StdoutEncoding)
		}},
		{"JSON", "#!/bin/bash\necho '{\"a\": 1}'", run.Options{}, func(t *testing.T, r run.Result) {
			require.JSONEq(t, `{"a":1}`, string(r.Result))
		}},

		// Processes, signals, time.
		{"background child", "#!/bin/bash\nsleep 60 & echo done", run.Options{}, quick("done\n")},
		{"daemonised child", "#!/bin/bash\nsetsid sleep 60 >/dev/null 2>&1 </dev/null & echo done", run.Options{}, quick("done\n")},
		{"setsid and a limit", "#!/bin/bash\n(setsid sleep 300 &); sleep 300", limit("2s"), func(t *testing.T, r run.Result) {
			require.Equal(t, run.TimedOut, r.State)
			require.Less(t, r.DurationMs, int64(6000))
		}},
		{"signals ignored", "#!/bin/bash\ntrap '' TERM INT HUP; sleep 300", limit("2s"), func(t *testing.T, r run.Result) {
			require.Equal(t, run.TimedOut, r.State)
			require.Less(t, r.DurationMs, int64(8000))
		}},
		{"stdin is empty", "#!/bin/bash\nread x; echo \"[$x]\"", run.Options{}, quick("[]\n")},
		{"stdin", "#!/bin/bash\ntr a-z A-Z", run.Options{Stdin: "abc"}, stdout("ABC")},
		{"fork bomb", "#!/bin/bash\n:(){ :|:& };:\nwait; sleep 300", limit("3s"), func(t *testing.T, r run.Result) {
			require.True(t, r.State.Terminal())
			require.NotEqual(t, run.Failed, r.State, "%v", r.Error)
		}},
		{"out of memory", "#!/usr/bin/env python3\nbytearray(10**10)\nx=[]\nwhile True: x.append(bytearray(10**7))", limit("30s"), oomOrMemoryError},
		{"out of memory, page by page", "#!/usr/bin/env python3\nx=[]\nwhile True: x.append(b'x'*10**7)", limit("30s"), func(t *testing.T, r run.Result) {
			require.Equal(t, run.OOMKilled, r.State)
			require.True(t, r.OOMKilled)
			require.Nil(t, r.ExitCode)
		}},
		{"kill -9 itself", "#!/bin/bash\nkill -9 $$", run.Options{}, func(t *testing.T, r run.Result) {
			require.Equal(t, run.Signalled, r.State)
			require.Equal(t, "SIGKILL", r.Signal)
			require.False(t, r.OOMKilled)
			require.Nil(t, r.ExitCode)
		}},
		{"exit 137", "#!/bin/bash\nexit 137", run.Options{}, func(t *testing.T, r run.Result) {
			require.Equal(t, run.Exited, r.State)
			require.Equal(t, 137, *r.ExitCode)
			require.Empty(t, r.Signal)
			require.False(t, r.OOMKilled)
		}},
		{"endless loop", "while(true){}", run.Options{Runtime: "node", Timeout: "2s"}, func(t *testing.T, r run.Result) {
			require.Equal(t, run.TimedOut, r.State)
			require.Less(t, r.DurationMs, int64(6000))
		}},
		{"init can't be ended from inside", "#!/bin/bash\nfor s in KILL SEGV QUIT ABRT TERM STOP; do kill -$s 1; done 2>/dev/null; echo alive", run.Options{}, quick("alive\n")},
		{"only the container's own view", "#!/bin/bash\ncat /proc/1/environ 2>/dev/null; ls /proc/1/root 2>/dev/null; cat /etc/hostname; id -u", run.Options{}, func(t *testing.T, r run.Result) {
			require.NotContains(t, r.Stdout, "PATH=")
			require.Contains(t, r.Stdout, "65532\n")
			host, err := os.Hostname()
			require.NoError(t, err)
			require.NotContains(t, strings.Fields(r.Stdout), host)
		}},
		{"no network", "#!/usr/bin/env python3\nimport socket\nfor host,port in [('1.1.1.1',80),('169.254.169.254',80),('::ffff:169.254.169.254',80),('172.17.0.1',22)]:\n  try:\n    socket.create_connection((host,port),timeout=2); print('REACHED',host)\n  except OSError: pass\ntry:\n  socket.getaddrinfo('example.com',80); print('RESOLVED')\nexcept OSError: print('closed')", run.Options{}, quick("closed\n")},

		// Disks.
		{"full outbox", "#!/bin/bash\ndd if=/dev/zero of=$MCPX_OUTBOX/big bs=1M count=100000 2>&1 | tail -4; exit ${PIPESTATUS[0]}", run.Options{}, noSpace},
		{"full /tmp", "#!/bin/bash\ndd if=/dev/zero of=/tmp/big bs=1M count=100000 2>&1 | tail -4; exit ${PIPESTATUS[0]}", run.Options{}, noSpace},
		{"full /dev/shm", "#!/bin/bash\ndd if=/dev/zero of=/dev/shm/big bs=1M count=100000 2>&1 | tail -4; exit ${PIPESTATUS[0]}", run.Options{}, noSpace},
		{"root is read-only", "#!/bin/bash\ntouch /x /usr/x /etc/x /run/mcpx/job/x 2>/dev/null; ls /x /usr/x /etc/x /run/mcpx/job/x 2>/dev/null; echo end", run.Options{}, stdout("end\n")},
		{"links in the outbox", "#!/bin/bash\nln -s /etc/passwd $MCPX_OUTBOX/a; ln -s / $MCPX_OUTBOX/d; mkfifo $MCPX_OUTBOX/p; : > $MCPX_OUTBOX/empty; echo x > $MCPX_OUTBOX/ok", run.Options{}, func(t *testing.T, r run.Result) {
			require.Len(t, r.Artifacts, 2)
			require.Len(t, r.Skipped, 3)
			for _, skip := range r.Skipped {
				require.NotEmpty(t, skip.Reason)
			}
		}},
		{"killed run keeps its files", "#!/bin/bash\necho x > $MCPX_OUTBOX/ok; sleep 99", limit("1s"), func(t *testing.T, r run.Result) {
			require.Equal(t, run.TimedOut, r.State)
			require.Len(t, r.Artifacts, 1)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.check(t, d.exec(t, run.Request{Source: c.source, Options: c.options}))
		})
	}
}

func stdout(want string) func(*testing.T, run.Result) {
	return func(t *testing.T, r run.Result) {
		require.Equal(t, run.Exited, r.State, "%v %s", r.Error, r.Stderr)
		require.Equal(t, want, r.Stdout)
		require.Equal(t, 0, *r.ExitCode)
	}
}

// quick is stdout, and the script took no longer than it had to.
func quick(want string) func(*testing.T, run.Result) {
	return func(t *testing.T, r run.Result) {
		stdout(want)(t, r)
		require.Less(t, r.DurationMs, int64(10_000))
	}
}

func warned(r run.Result, what string) bool {
	for _, line := range r.Logs {
		if line.Level == "warn" && strings.Contains(line.Message, what) {
			return true
		}
	}
	return false
}

// One allocation of 10 GB may be refused by the kernel, which the interpreter
// reports, or granted and then kill it; both tell of memory.
func oomOrMemoryError(t *testing.T, r run.Result) {
	if r.State == run.Exited {
		require.Equal(t, 1, *r.ExitCode)
		require.Contains(t, r.Stderr, "MemoryError")
		return
	}
	require.Equal(t, run.OOMKilled, r.State)
}

func noSpace(t *testing.T, r run.Result) {
	if r.State == run.OOMKilled || r.OOMKilled {
		return // the disk is memory, and its limit may bite first
	}
	require.Equal(t, run.Exited, r.State)
	require.Equal(t, 1, *r.ExitCode)
	require.Contains(t, r.Stdout+r.Stderr, "No space left")
}

func TestBadRequestsAreAnsweredAndLeaveNothing(t *testing.T) {
	d := begin(t)
	for _, c := range []struct {
		name, body, code, field string
		status                  int
	}{
		{"unknown field", `{"source":"x","options":{"timeot":"1s"}}`, "invalid_body", "options.timeot", 400},
		{"both", `{"source":"x","file":"y"}`, "invalid_request", "", 400},
		{"neither", `{}`, "invalid_request", "", 400},
		{"bad duration", `{"source":"#!/bin/bash","options":{"timeout":"soon"}}`, "invalid_option", "options.timeout", 400},
		{"unknown interpreter", `{"source":"#!/usr/bin/env nosuchlang\n"}`, "unknown_interpreter", "", 400},
		{"missing file", `{"file":"nosuch"}`, "script_not_found", "file", 404},
		{"no such directory", `{"source":"#!/bin/bash\npwd","options":{"cwd":"/nope/at/all"}}`, "cwd_not_found", "options.cwd", 404},
		{"NUL", `{"source":"#!/bin/bash\necho \u0000"}`, "invalid_script", "source", 400},
		{"NUL in the shebang", `{"source":"#!/bin/ba\u0000sh"}`, "invalid_script", "source", 400},
		{"long shebang", `{"source":"#!/` + strings.Repeat("x", 5000) + `"}`, "", "", 400},
		{"200 KB env value", `{"source":"#!/bin/bash","options":{"env":{"BIG":"` + strings.Repeat("x", 200<<10) + `"}}}`, "too_large", "options.env.BIG", 413},
		{"not UTF-8", "{\"source\":\"#!/bin/bash\\necho \xff\"}", "invalid_body", "", 400},
		{"not JSON", `{"source"`, "invalid_body", "", 400},
		{"timeout above the ceiling", `{"source":"#!/bin/bash","options":{"timeout":"100h"}}`, "denied", "options.timeout", 403},
		{"permissions", `{"source":"#!/bin/bash","options":{"permissions":"strict"}}`, "", "options.permissions", 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, answer := d.send(t, []byte(c.body))
			require.Equal(t, c.status, status, "%s", answer)
			var problem struct {
				Code, Field, Hint, Title, Detail string
				Status                           int
			}
			require.NoError(t, json.Unmarshal(answer, &problem), "%s", answer)
			require.Equal(t, c.status, problem.Status)
			require.NotEmpty(t, problem.Detail)
			if c.code != "" {
				require.Equal(t, c.code, problem.Code)
			}
			if c.field != "" {
				require.Equal(t, c.field, problem.Field)
			}
		})
	}
	require.Empty(t, containers(t, d.state))
}

func TestTenMegabyteScriptRuns(t *testing.T) {
	d := begin(t)
	r := d.source(t, "#!/bin/bash\necho ok\nexit\n"+strings.Repeat("#"+strings.Repeat("x", 1023)+"\n", 10<<10))
	require.Equal(t, "ok\n", r.Stdout)
}

func TestEmptyFileIsAnEmptySuccess(t *testing.T) {
	d := begin(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/empty.sh", nil, 0o644))
	stdout("")(t, d.exec(t, run.Request{File: dir + "/empty.sh"}))
}

func TestHundredsOfRunsAtOnce(t *testing.T) {
	d := begin(t, "--slots", "8", "--queue", "1000")
	const runs, at = 100, 20
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	next := make(chan int)
	for range at {
		wg.Go(func() {
			for range next {
				_, body := d.post(t, run.Request{Source: "#!/bin/bash\necho hi"})
				var r run.Result
				if json.Unmarshal(body, &r) != nil {
					r.Stdout = string(body)
				}
				mu.Lock()
				answers[r.Stdout]++
				mu.Unlock()
			}
		})
	}
	for i := range runs {
		next <- i
	}
	close(next)
	wg.Wait()
	require.Equal(t, map[string]int{"hi\n": runs}, answers)
}

func TestQueueTimeIsNotScriptTime(t *testing.T) {
	d := begin(t, "--slots", "2")
	var wg sync.WaitGroup
	results := make([]run.Result, 6)
	for i := range results {
		wg.Go(func() {
			results[i] = d.exec(t, run.Request{Source: "#!/bin/bash\nsleep 1; echo ok", Options: run.Options{Timeout: "2s"}})
		})
	}
	wg.Wait()
	waited := false
	for _, r := range results {
		stdout("ok\n")(t, r)
		waited = waited || *r.Timings.Queued > 900
	}
	require.True(t, waited, "queue time is told apart")
}

func TestHostileScriptsLeaveTheOthersUnharmed(t *testing.T) {
	d := begin(t, "--slots", "30")
	var wg sync.WaitGroup
	for _, source := range []string{
		"#!/bin/bash\n:(){ :|:& };:\nwait; sleep 300",
		"#!/usr/bin/env python3\nx=[]\nwhile True: x.append(b'x'*10**7)",
		"#!/bin/bash\nyes",
		"#!/bin/bash\ncat /dev/zero > /tmp/x",
		"#!/bin/bash\nwhile :; do :; done",
	} {
		wg.Go(func() {
			r := d.exec(t, run.Request{Source: source, Options: run.Options{Timeout: "10s"}})
			if r.State == run.Failed {
				t.Errorf("%.40q: %v", source, r.Error)
			}
		})
	}
	for i := range 20 {
		wg.Go(func() {
			r := d.source(t, fmt.Sprintf("#!/bin/bash\nsleep 1; echo %d", i))
			if r.Stdout != fmt.Sprintf("%d\n", i) {
				t.Errorf("run %d: %s %v %q", i, r.State, r.Error, r.Stdout)
			}
		})
	}
	wg.Wait()
}

// A script that uses up the container's processes leaves init none to make a
// thread of; it once died of that, in one of six such runs.
func TestForkBombsNeverTakeInitAlong(t *testing.T) {
	d := begin(t, "--slots", "3")
	var wg sync.WaitGroup
	for range 9 {
		wg.Go(func() {
			r := d.exec(t, run.Request{Source: "#!/bin/bash\n:(){ :|:& };:\nwait; sleep 300", Options: run.Options{Timeout: "1s"}})
			if r.State != run.TimedOut {
				t.Errorf("%s: %v", r.State, r.Error)
			}
		})
	}
	wg.Wait()
}

func TestKilledDaemonLeavesNothingAndTellsOfEveryRun(t *testing.T) {
	state := stateDir(t)
	d := start(t, state, "--slots", "20")
	const runs = 20
	for range runs {
		status, answer := d.post(t, run.Request{Source: "#!/bin/bash\nsleep 600", Options: run.Options{Task: &run.TaskOptions{TTL: 60_000}, Timeout: "10m"}})
		require.Equal(t, http.StatusAccepted, status, "%s", answer)
	}
	within(t, time.Minute, "runs under way", func() bool { return d.count(t, run.Running) == runs })
	d.kill(t)

	again := start(t, state)
	within(t, 20*time.Second, "containers gone", func() bool { return len(containers(t, state)) == 0 })
	require.Equal(t, runs, again.count(t, run.Lost))
	for _, s := range again.list(t, run.Lost) {
		resp, err := again.http.Get("http://mcpx/v1/runs/" + s.RunID + "/frames?after=0")
		require.NoError(t, err)
		var text bytes.Buffer
		_, err = text.ReadFrom(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, 1, strings.Count(text.String(), "event: end"), "%s", text.String())
	}
	again.stop(t)
	again.nothingLeft(t)
}

func (d *daemon) list(t *testing.T, state run.State) []run.Summary {
	t.Helper()
	resp, err := d.http.Get("http://mcpx/v1/runs?limit=100&state=" + string(state))
	require.NoError(t, err)
	defer resp.Body.Close()
	var page struct {
		Runs []run.Summary `json:"runs"`
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&page))
	return page.Runs
}

func (d *daemon) count(t *testing.T, state run.State) int { return len(d.list(t, state)) }

func TestClientThatGoesAwayEndsItsRun(t *testing.T) {
	d := begin(t)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", "http://mcpx/v1/exec", strings.NewReader(`{"source":"#!/bin/bash\nsleep 600","options":{"output":"stream"}}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.http.Do(req)
	require.NoError(t, err)
	first := make([]byte, 1)
	_, err = resp.Body.Read(first)
	require.NoError(t, err)
	cancel()
	resp.Body.Close()
	within(t, 15*time.Second, "run cancelled", func() bool { return d.count(t, run.Cancelled) == 1 })
}

func TestCommandLineRunsWithoutADaemon(t *testing.T) {
	state := stateDir(t)
	mcpx := func(args ...string) (string, string, int) {
		cmd := exec.Command(programs+"/mcpx", args...)
		cmd.Env = append(os.Environ(), "MCPX_STATE="+state)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if _, ok := err.(*exec.ExitError); err != nil && !ok {
			require.NoError(t, err)
		}
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	for _, c := range []struct {
		name, source string
		flags        []string
		stdout       string
		code         int
	}{
		{"success", "#!/bin/bash\necho hi", nil, "hi\n", 0},
		{"script's code", "#!/bin/bash\nexit 3", nil, "", 3},
		{"time limit", "#!/bin/bash\nsleep 60", []string{"--timeout", "1s"}, "", 124},
		{"signal", "#!/bin/bash\nkill -9 $$", nil, "", 137},
		{"unknown interpreter", "#!/usr/bin/env nosuch\n", nil, "", 2},
		{"denied", "#!/bin/bash\n", []string{"--timeout", "100h"}, "", 126},
		{"usage", "#!/bin/bash\n", []string{"--nosuch"}, "", 2},
		{"returned value", "return { sum: 1 + 1 }", nil, "{\"sum\":2}\n", 0},
		{"written and returned", "console.log('a'); return 1", nil, "a\n", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs, code := mcpx(append(append([]string{"exec"}, c.flags...), c.source)...)
			require.Equal(t, c.code, code, "%s", errs)
			require.Equal(t, c.stdout, out)
			if code == 2 || code == 126 {
				require.Equal(t, 1, strings.Count(errs, "\n"), "one line: %q", errs)
			}
		})
	}
	require.Empty(t, containers(t, state))
}

// A hundred bytes can hold up a parser of TypeScript for ever, or end the
// program that it runs in. Others must not notice.
func TestScriptsThatHoldUpTheirParserHarmNobody(t *testing.T) {
	d := begin(t, "--slots", "4")
	var wg sync.WaitGroup
	for _, source := range []string{
		"let x = " + strings.Repeat("a?(b):c=>", 20) + "1; return x",
		"return " + strings.Repeat("(", 256<<10),
	} {
		wg.Go(func() {
			status, answer := d.post(t, run.Request{Source: source, Options: run.Options{Timeout: "10s"}})
			var r run.Result
			if json.Unmarshal(answer, &r) != nil || status == http.StatusOK && (r.ExitCode == nil || *r.ExitCode == 0) {
				t.Errorf("%d: %.300s", status, answer)
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			if r := d.source(t, "#!/bin/bash\necho hi"); r.Stdout != "hi\n" {
				t.Errorf("%s %v", r.State, r.Error)
			}
		})
	}
	wg.Wait()
	stdout("1\n")(t, d.source(t, "console.log(1)"))
}
