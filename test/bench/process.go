// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// roleFlag makes a process one of the driver's; the pipes are its descriptors 3 and 4.
const roleFlag = "-role"

// patience bounds one request beyond the time that it is asked to take.
const patience = 90 * time.Second

// process is one running role.
type process struct {
	name    string
	running *lab.Process
	in, out *os.File
	enc     *json.Encoder
	dec     *json.Decoder
	mu      sync.Mutex
}

// spawn starts this program again in a role, on a machine of the lab.
func spawn(host *lab.Host, roleName, name string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	requestsR, requestsW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answersR, answersW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, requestsR.Close(), requestsW.Close())
	}
	cmd := exec.Command(self, roleFlag, roleName)
	cmd.ExtraFiles = []*os.File{requestsR, answersW}
	cmd.Stderr = os.Stderr
	running, err := host.Start(cmd)
	requestsR.Close() // the child has its own
	answersW.Close()
	if err != nil {
		requestsW.Close()
		answersR.Close()
		return nil, err
	}
	return &process{
		name: name, running: running, in: requestsW, out: answersR,
		enc: json.NewEncoder(requestsW), dec: json.NewDecoder(answersR),
	}, nil
}

// call asks for op and waits for the answer; takes is how long it is meant to take.
func (p *process) call(ctx context.Context, op string, takes time.Duration, args, result any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, takes+patience)
	defer cancel()
	stop := context.AfterFunc(ctx, p.running.Kill)
	defer stop()
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	var res response
	if err = p.enc.Encode(request{Op: op, Args: raw}); err == nil {
		err = p.dec.Decode(&res)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %s did not answer: %w", p.name, op, context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("%s: %s: the process has ended (%w); its own words stand above", p.name, op, err)
	case res.Error != "":
		return fmt.Errorf("%s: %s", p.name, res.Error)
	case result == nil:
		return nil
	}
	return json.Unmarshal(res.Result, result)
}

// end closes the pipe, which ends the process.
func (p *process) end() { p.in.Close() }

// wait waits for the end, and makes one where it does not come.
func (p *process) wait() {
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	select {
	case <-p.running.Done():
	case <-timer.C:
		p.running.Kill()
		<-p.running.Done()
	}
	p.out.Close()
}

// crew is the processes of one transport. All but the paths count.
type crew struct {
	name    string
	all     []*process // in the order of their start
	counted []*process
	load    *process // opens streams and drives what is measured
	serve   *process // the far end of the streams
	counts  *process // knows how many connections a tunnel has; nil: there is none
	foreign float64  // cores that others kept busy in the last window
}

func (c *crew) stop() {
	for _, p := range c.all {
		p.end()
	}
	for _, p := range c.all {
		p.wait()
	}
}

// each asks all counted processes for the same at once.
func (c *crew) each(ctx context.Context, op string, args func(*process) any, results []usage) error {
	errs := make([]error, len(c.counted))
	var wg sync.WaitGroup
	for i, p := range c.counted {
		wg.Go(func() {
			var result any
			if results != nil {
				result = &results[i]
			}
			errs[i] = p.call(ctx, op, 0, args(p), result)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// reading is what all counted processes of a crew did in one window.
type reading struct {
	wall time.Duration // of the load's process
	cpu  time.Duration // of all
	load usage
	far  usage
}

// rate is MB/s of the payload that arrived at the load and at the far end.
func (r reading) rate() float64 {
	return float64(r.load.Received)/1e6/r.load.Wall.Seconds() + float64(r.far.Received)/1e6/r.far.Wall.Seconds()
}

// cost is CPU seconds of all processes per GB that arrived.
func (r reading) cost() float64 {
	gb := float64(r.load.Received+r.far.Received) / 1e9
	if gb == 0 {
		return 0
	}
	return r.cpu.Seconds() / gb
}

// measure runs body within a measured window of all counted processes.
func (c *crew) measure(ctx context.Context, profile string, body func() error) (reading, error) {
	begin := func(p *process) any {
		if profile == "" {
			return windowArgs{}
		}
		return windowArgs{Profile: profile + "-" + p.name}
	}
	began, busy := time.Now(), busyTime()
	if err := c.each(ctx, opBegin, begin, nil); err != nil {
		return reading{}, err
	}
	bodyErr := body()
	results := make([]usage, len(c.counted))
	if err := errors.Join(bodyErr, c.each(ctx, opEnd, func(*process) any { return nil }, results)); err != nil {
		return reading{}, err
	}
	var r reading
	for i, p := range c.counted {
		r.cpu += results[i].CPU
		if p == c.load {
			r.wall, r.load = results[i].Wall, results[i]
		}
		if p == c.serve {
			r.far = results[i]
		}
	}
	c.foreign = max(0, (busyTime()-busy-r.cpu).Seconds()/time.Since(began).Seconds())
	return r, nil
}

// pause waits as a part of a measurement.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// busyTime is what all processors of the machine have worked so far, by the
// kernel's count in hundredths of a second; 0 where it cannot be read.
func busyTime() time.Duration {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), "\n")
	return parseBusy(first)
}

// parseBusy reads the first line of /proc/stat (proc_stat(5)): all but idle and iowait.
func parseBusy(line string) (sum time.Duration) {
	const tick = time.Second / 100
	fields := strings.Fields(line)
	for i, field := range fields {
		if i == 0 || i == 4 || i == 5 || i > 8 {
			continue
		}
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		sum += time.Duration(n) * tick
	}
	return sum
}
