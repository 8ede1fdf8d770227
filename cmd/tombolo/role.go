// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
)

// runRole runs a role: SIGTERM or SIGINT ends soft and begins the drain, the
// next one ends hard and cuts the drain short. reload is called on SIGHUP and
// when the file is no longer as it was last read.
func runRole(parent context.Context, file *configFile, log *slog.Logger, reload func() error,
	role func(soft, hard context.Context) error) error {
	soft, cancelSoft := context.WithCancel(parent)
	defer cancelSoft()
	hard, cancelHard := context.WithCancel(context.WithoutCancel(parent))
	defer cancelHard()
	// Records may go to standard output, and logs go to standard error. Whoever reads
	// them may end: the write fails then, and the streams live on.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	g := run.NewGroup(context.WithoutCancel(parent))
	g.Do(func(ctx context.Context) {
		for _, cancel := range []func(){cancelSoft, cancelHard} {
			select {
			case <-signals:
				cancel()
			case <-ctx.Done():
				return
			}
		}
	})
	g.Do(func(ctx context.Context) { reloader(ctx, file, log, reload) })
	turn := func() { telemetry.TurnLog(hard, log, time.Now()) }
	defer turn()
	g.Do(func(ctx context.Context) { run.Every(ctx, limit.LogTold, turn) })
	err := role(soft, hard)
	g.Stop()
	return errors.Join(err, g.Wait())
}

// newRegistry makes a registry with what every role reports.
func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: telemetry.BuildInfo, Help: "Always 1; the label names the version.",
	}, []string{"version"})
	info.WithLabelValues(version).Set(1)
	reg.MustRegister(info)
	return reg
}

// reloader calls reload on SIGHUP and when the file is no longer as it was last
// read, until ctx ends. reload reads the file. Its folder is watched, because editors
// and Kubernetes replace a file by renaming.
func reloader(ctx context.Context, file *configFile, log *slog.Logger, reload func() error) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	var changed chan fsnotify.Event
	var missed chan error // events that did not fit: without a reader no more would come
	if file.path != "" {
		w, err := fsnotify.NewWatcher()
		if err == nil {
			defer w.Close()
			err = w.Add(filepath.Dir(file.path))
			changed, missed = w.Events, w.Errors
		}
		if err != nil {
			log.Warn("changes of the configuration are noticed on SIGHUP only", telemetry.AttrReason, err)
		}
	}
	settle := time.NewTimer(0) // at once: it may have changed since the start read it, before it was watched
	defer settle.Stop()
	settling := true
	soon := func() { // not later for each event: a log in the same folder may change all the time
		if !settling {
			settle.Reset(limit.ConfigDebounce)
			settling = true
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		case <-changed:
			soon()
			continue
		case <-missed:
			soon()
			continue
		case <-settle.C:
			settling = false
			if !file.changed() {
				continue // another file of the folder
			}
		}
		if err := reload(); err != nil {
			f := fault.From(err)
			log.Error("the new configuration is refused; the last good one stays", telemetry.AttrCode, f.Code,
				telemetry.AttrReason, f.Error())
			continue
		}
		log.Info("configuration loaded", "file", file.path)
	}
}

// configFile is the file of --config, which remembers how it was when it was last read.
type configFile struct {
	path string // empty: there is none
	read fileStamp
}

// load reads the file.
func (c *configFile) load() ([]byte, error) {
	c.read = stamp(c.path) // before: what changes meanwhile is read once more
	return readConfig(c.path)
}

// changed says whether the file is another one than was last read.
func (c *configFile) changed() bool { return c.path != "" && stamp(c.path) != c.read }

// fileStamp tells a file from another one, or from itself before.
type fileStamp struct {
	size  int64
	at    time.Time
	real  string // where links lead: a ConfigMap is replaced by moving one
	inode uint64 // one that was renamed into place within a tick of the clock
}

func stamp(file string) (s fileStamp) {
	if info, err := os.Stat(file); err == nil {
		s.size, s.at = info.Size(), info.ModTime()
		s.real, _ = filepath.EvalSymlinks(file)
		if sys, ok := info.Sys().(*syscall.Stat_t); ok {
			s.inode = sys.Ino
		}
	}
	return s
}

// readSecret resolves a value that may stand in a file (@FILE) or on stdin (-).
func readSecret(stdin io.Reader, value, flag string) (string, error) {
	var data []byte
	var err error
	switch path, isFile := strings.CutPrefix(value, "@"); {
	case isFile:
		data, err = private.ReadPublic(path, limit.JoinBody)
	case value == "-":
		data, err = io.ReadAll(io.LimitReader(stdin, limit.JoinBody))
	default:
		return value, nil
	}
	if err != nil {
		return "", fault.Newf(fault.CodeUsage, "%s cannot be read", flag).Because(err).
			Hint("write the value itself, @FILE that holds it, or - for stdin")
	}
	return strings.TrimSpace(string(data)), nil
}

// readJoin reads a join line as readSecret does, and names the file of one that is none.
// setting is the flag or the key that the value comes from.
func readJoin(stdin io.Reader, value, setting string) (string, error) {
	line, err := readSecret(stdin, value, setting)
	if path, isFile := strings.CutPrefix(value, "@"); err == nil && isFile {
		if _, wrong := trust.ParseJoin(line); wrong != nil {
			f := fault.From(wrong)
			return "", fault.Newf(f.Code, "the join line in %s cannot be read", path).Whyf("%s", f.Why).
				Hint("write the whole line of 'tombolo token create' to it, or name another file with %s", setting)
		}
	}
	return line, err
}

// readConfig reads a configuration file: a regular one, for it is read again at each reload.
func readConfig(file string) ([]byte, error) {
	data, err := private.ReadPublic(file, limit.ConfigFile)
	if err != nil {
		return nil, fault.New(fault.CodeConfig, "the configuration cannot be read").Because(err).Hint("correct --config")
	}
	return data, nil
}
