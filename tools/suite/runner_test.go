// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// runStages runs stages and gives what was printed and the exit code.
func runStages(t *testing.T, stages ...stage) (string, int) {
	t.Helper()
	var out bytes.Buffer
	r := newRunner(&out, time.Now)
	err := r.runAll(stages)
	r.close()
	var code exitCode
	if err != nil && !errors.As(err, &code) {
		t.Fatalf("unexpected error %v", err)
	}
	return out.String(), int(code)
}

func ok(s *stageRun) error     { s.passed = 2; return nil }
func bad(*stageRun) error      { return errors.New("broken") }
func skips(s *stageRun) error  { s.passed, s.skips = 1, []string{"p.A: why", "p.B: why"}; return nil }
func failed(s *stageRun) error { s.passed, s.failed = 1, 3; return errors.New("exit status 1") }

func TestClosingLine(t *testing.T) {
	for _, tc := range []struct {
		name   string
		stages []stage
		last   string
		code   int
	}{
		{"all well", []stage{{"a", "", nil, ok}, {"b", "", nil, ok}}, "4 passed, 0 failed, 0 skipped", 0},
		{"failed tests", []stage{{"a", "", nil, failed}, {"b", "", nil, ok}}, "3 passed, 3 failed, 0 skipped", 1},
		{"a check that is no test fails as one", []stage{{"a", "", nil, bad}, {"b", "", nil, ok}}, "2 passed, 1 failed, 0 skipped", 1},
		{"each skip counts, one that two stages have also", []stage{{"a", "", nil, skips}, {"b", "", nil, skips}}, "2 passed, 0 failed, 4 skipped", 0},
		{"a stage that is not run is a failure", []stage{{"a", "", nil, bad}, {"b", "", []string{"a"}, ok}}, "0 passed, 2 failed, 0 skipped", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, code := runStages(t, tc.stages...)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if last := lines[len(lines)-1]; last != tc.last || code != tc.code {
				t.Errorf("last line %q, exit %d; want %q, %d\n%s", last, code, tc.last, tc.code, out)
			}
		})
	}
}

// module writes a module with one test file and gives a run of it.
func module(t *testing.T, test string) testRun {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.test/x\n\ngo 1.26\n", "x_test.go": "package x\n\n" + test} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return testRun{dir: dir, packages: []string{"./..."}}
}

func TestRealGoTest(t *testing.T) {
	const head = "import \"testing\"\n\n"
	for _, tc := range []struct {
		name, test, last, says string
		noSkips                bool
		pattern                string
	}{
		{"pass", head + "func TestA(t *testing.T) {}\n", "1 passed, 0 failed, 0 skipped", "ok", false, ""},
		{"fail", head + "func TestA(t *testing.T) { t.Error(\"because\") }\n", "0 passed, 1 failed, 0 skipped", "because", false, ""},
		{"panic", head + "func TestA(t *testing.T) { panic(\"because\") }\n", "0 passed, 1 failed, 0 skipped", "because", false, ""},
		{"does not build", head + "func TestA(t *testing.T) { undefinedName() }\n", "0 passed, 1 failed, 0 skipped", "undefinedName", false, ""},
		{"no test", "", "0 passed, 1 failed, 0 skipped", "no test ran", false, ""},
		{"a skip where none may be", head + "func TestA(t *testing.T) { t.Skip(\"because\") }\n", "0 passed, 1 failed, 0 skipped", "because", true, ""},
		{"a pattern that matches nothing", head + "func TestA(t *testing.T) {}\n", "0 passed, 1 failed, 0 skipped", "no test ran", false, "XXX"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run := module(t, tc.test)
			run.noSkips, run.pattern = tc.noSkips, tc.pattern
			out, _ := runStages(t, stage{"x", "", nil, func(s *stageRun) error { return s.test(run) }})
			if !strings.HasSuffix(out, "\n"+tc.last+"\n") || !strings.Contains(out, tc.says) {
				t.Errorf("want the closing line %q and the word %q in\n%s", tc.last, tc.says, out)
			}
		})
	}
}

// TestOnlySomeTests: those that are named run, all of them, and no other; a pattern goes before.
func TestOnlySomeTests(t *testing.T) {
	const three = "import \"testing\"\n\nfunc TestA(t *testing.T) { t.Run(\"b\", func(*testing.T) {}); t.Run(\"c\", func(*testing.T) {}) }\nfunc TestAB(t *testing.T) { t.Error(\"not this\") }\nfunc TestC(t *testing.T) {}\n"
	for pattern, last := range map[string]string{"": "3 passed, 0 failed, 0 skipped", "TestC": "1 passed, 0 failed, 0 skipped"} {
		run := module(t, three)
		run.only, run.pattern = []string{"TestA", "TestC"}, pattern
		out, _ := runStages(t, stage{"x", "", nil, func(s *stageRun) error { return s.test(run) }})
		if !strings.HasSuffix(out, "\n"+last+"\n") {
			t.Errorf("pattern %q: want %s in\n%s", pattern, last, out)
		}
	}
}

// TestInterruptWaitsForCleanup interrupts a shell that cleans up, and proves
// that the suite ended after it.
func TestInterruptWaitsForCleanup(t *testing.T) {
	dir := t.TempDir()
	ready, cleaned := filepath.Join(dir, "ready"), filepath.Join(dir, "cleaned")
	script := "trap 'sleep 0.2; : >" + cleaned + "; exit 1' INT; mkfifo " + dir + "/never; : >" + ready + "; while :; do read -t 0.05 <>" + dir + "/never; done"
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
			if _, err := os.Stat(ready); err == nil {
				tick.Stop()
				_ = syscall.Kill(os.Getpid(), syscall.SIGINT) // to ourselves: it cannot fail
				return
			}
		}
	}()
	out, code := runStages(t,
		stage{"a", "", nil, func(s *stageRun) error { return s.do(command{dir: dir, args: []string{"bash", "-c", script}}) }},
		stage{"b", "", nil, ok})
	<-asked
	if _, err := os.Stat(cleaned); err != nil {
		t.Errorf("the suite did not wait for the cleanup: %v", err)
	}
	if code != int(exitInterrupted) || !strings.Contains(out, "interrupted") || !strings.HasSuffix(out, "\n0 passed, 1 failed, 0 skipped\n") {
		t.Errorf("exit %d, want %d, in\n%s", code, exitInterrupted, out)
	}
}

// TestLeftoverIsFound leaves a process behind and wants it reported and gone.
func TestLeftoverIsFound(t *testing.T) {
	dir := t.TempDir()
	out, code := runStages(t, stage{"a", "", nil, func(s *stageRun) error {
		return s.do(command{dir: dir, args: []string{"bash", "-c", "sleep 1000 >/dev/null 2>&1 & echo $! >" + dir + "/pid"}})
	}})
	if code != 1 || !strings.Contains(out, "left processes running") {
		t.Errorf("exit %d, want 1 and the reason in\n%s", code, out)
	}
}

// TestLeftoverThatHoldsTheOutput: it is found where the output ends with it, too.
func TestLeftoverThatHoldsTheOutput(t *testing.T) {
	for what, tc := range map[string]struct{ program, says string }{
		"in the group": {"", "they were killed"},
		"in its own":   {"setsid ", "outside of its group"},
	} {
		t.Run(what, func(t *testing.T) {
			pid := filepath.Join(t.TempDir(), "pid")
			script := tc.program + "bash -c 'echo $$ >" + pid + "; exec sleep 60' &\n" +
				"until [ -s " + pid + " ]; do :; done; echo said"
			out, code := runStages(t, stage{"a", "", nil, func(s *stageRun) error {
				return s.do(command{dir: filepath.Dir(pid), args: []string{"bash", "-c", script}, show: "bash"})
			}})
			if code != 1 || !strings.Contains(out, tc.says) || !strings.Contains(out, "    said\n") {
				t.Errorf("exit %d, want 1, what it says and the reason in\n%s", code, out)
			}
			if tc.program == "" {
				return // it is gone
			}
			text, err := os.ReadFile(pid)
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil || n < 2 { // 0 is our own group
				t.Fatalf("its number is %q", text)
			}
			if err := syscall.Kill(n, syscall.SIGKILL); err != nil {
				t.Error("it is not there:", err)
			}
		})
	}
}

// TestZombieIsNoLeftover: nothing of it runs.
func TestZombieIsNoLeftover(t *testing.T) {
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := cmd.Process.Pid
	if !running(group) {
		t.Error("what waits for input does not run")
	}
	in.Close()
	if err := ended(group); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(-group, 0); err != nil {
		t.Error("there is no zombie:", err)
	}
	if running(group) {
		t.Error("a zombie runs")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestChoose(t *testing.T) {
	all := stages(config{})
	got, err := choose(all, []string{"lab", "lint"})
	if err != nil || stageNames(got) != "lint, lab" {
		t.Errorf("got %s, %v; want the order of the table", stageNames(got), err)
	}
	for _, names := range [][]string{nil, {"nope"}} {
		if _, err := choose(all, names); err == nil {
			t.Errorf("choose %q: no error", names)
		}
	}
}

// tree writes files and gives the folder that they are in.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestTaggedFindsEveryPackage(t *testing.T) {
	const two = "func TestMain(m *testing.M) {}\n\nfunc TestB(t *testing.T) {}\n\nfunc helper(t *testing.T) {}\n\nfunc TestA(t *testing.T) {}\n"
	root := tree(t, map[string]string{
		"a/x_test.go": "//go:build lab\n\npackage a\n\n" + two, "b/c/x_test.go": "//go:build linux && lab\n\npackage c\n\nfunc TestD(*testing.T) {}\n\nfunc TestC(tt *testing.T) {}\n",
		"a/y_test.go": "package a\n\nfunc TestOfUnit(t *testing.T) {}\n",
		"d/x_test.go": "package d\n\n// //go:build lab is not here\n", "e/x.go": "//go:build lab\n\npackage e\n", "f/x_test.go": "//go:build kube\n\npackage f\n",
	})
	got, names, err := config{root: root}.tagged("lab")
	if err != nil || strings.Join(got, " ") != "./a ./b/c" || strings.Join(names, " ") != "TestA TestB TestC TestD" {
		t.Errorf("got %q, %q, %v", got, names, err)
	}
	if _, _, err := (config{root: root}).tagged("kube"); err == nil {
		t.Error("a stage without any test is no error")
	}
}

// TestVetMissesNoFile: with the tags it sees each file but those that are built without one.
func TestVetMissesNoFile(t *testing.T) {
	for _, tc := range []struct {
		name, only string
		vets       int
	}{
		{"with a tag", "//go:build lab\n\npackage a\n", 1},
		{"without a tag", "//go:build linux && !kube\n\npackage a\n", 2},
		{"in words alone", "package a\n\n// //go:build !lab\n", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := tree(t, map[string]string{"a/x.go": tc.only, "b/x.go": "package b\n"})
			if got, err := (config{root: root}).vets(); err != nil || len(got) != tc.vets {
				t.Errorf("%d runs of vet, %v; want %d: %v", len(got), err, tc.vets, got)
			}
		})
	}
}

// TestLongPackagesComeFirst, and none is lost; those that are named are there.
func TestLongPackagesComeFirst(t *testing.T) {
	got := longFirst([]string{"m/client", "m/cmd/tombolo", "m/internal/audit", "m/internal/stream/carrier", "m/test/etcd", "m/test/system"})
	if want := "m/test/etcd m/test/system m/cmd/tombolo m/internal/stream/carrier m/client m/internal/audit"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range long {
		if tests, err := filepath.Glob(filepath.Join(root, path, "*_test.go")); err != nil || len(tests) == 0 {
			t.Errorf("%s has no tests (%v)", path, err)
		}
	}
}

// TestSequentialPackagesStartNothing: by the law of the house our code starts goroutines in three packages alone.
func TestSequentialPackagesStartNothing(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	starts := regexp.MustCompile(`(?m)^\s*go \w|\.Go\(|\.Parallel\(`)
	tagged := regexp.MustCompile(`(?m)^//go:build (lab|kube)`)
	for _, path := range sequential {
		deps, err := output(root, "go", "list", "-deps", "-test", "."+path)
		if err != nil {
			t.Fatal(err)
		}
		for _, dep := range strings.Fields(deps) {
			for _, one := range []string{"internal/base/run", "internal/stream/splice", "internal/stream/carrier"} {
				if dep == modulePath+one {
					t.Errorf("%s imports %s", path, one)
				}
			}
		}
		files, err := filepath.Glob(filepath.Join(root, path, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s has no files (%v)", path, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if starts.Match(data) && !tagged.Match(data) {
				t.Errorf("%s starts a goroutine", file)
			}
		}
	}
}

// TestWhatIsCompiledOnce: make build and a test of the suite have one name in the cache for
// what they compile, in whatever way this machine compiles.
func TestWhatIsCompiledOnce(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	name := func(args ...string) string {
		cmd := exec.Command("go", append(append([]string{"list", "-export", "-f", "{{.BuildID}}"}, args...), "net")...)
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	t.Setenv("GOFLAGS", "-buildvcs=false")
	t.Setenv("CGO_ENABLED", "1")
	before := name()
	if err := compileOneWay(root); err != nil {
		t.Fatal(err)
	}
	if flags := os.Getenv("GOFLAGS"); flags != "-buildvcs=false -trimpath" {
		t.Errorf("the flags of this machine have become %q", flags)
	}
	if one, other := name(), name("-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version=v1"); one != other || one == before {
		t.Errorf("make build has %s, the suite %s, and without it %s", other, one, before)
	}
}
