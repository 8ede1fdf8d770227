// SPDX-License-Identifier: Apache-2.0

// Package roles runs the processes of a measurement: a driver starts its own
// program several times, each time in another role, and talks to each over two
// pipes, one JSON object for each request and one for its answer, in order. A
// process ends when its pipe does, so that none outlives the driver.
package roles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// Flag makes a process one of the driver's; the pipes are its descriptors 3 and 4.
const Flag = "-role"

// Patience bounds one request beyond the time that it is asked to take.
const Patience = 90 * time.Second

// Role is what a process does: it answers requests.
type Role interface {
	Do(op string, args json.RawMessage) (any, error)
}

// ErrUnknown answers a request that the role does not know.
var ErrUnknown = errors.New("the role does not know this request")

type request struct {
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
}

type response struct {
	Error  string          `json:"error,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// Arguments decodes the arguments of a request.
func Arguments[T any](raw json.RawMessage) (T, error) {
	var v T
	err := json.Unmarshal(raw, &v)
	return v, err
}

// Live is the life of one of the driver's processes. The driver alone hears
// Ctrl-C: the process ends when the driver closes the pipe.
func Live(r Role) error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	return Serve(r, os.NewFile(3, "requests"), os.NewFile(4, "answers"))
}

// Serve answers the driver until its pipe ends.
func Serve(r Role, in io.Reader, out io.Writer) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var req request
		if err := requests.Decode(&req); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		result, err := r.Do(req.Op, req.Args)
		var res response
		if err == nil {
			res.Result, err = json.Marshal(result)
		}
		if err != nil {
			res = response{Error: fmt.Sprintf("%s: %v", req.Op, err)}
		}
		if err := answers.Encode(res); err != nil {
			return err
		}
	}
}

// Process is one running role.
type Process struct {
	Name    string
	running *lab.Process
	in, out *os.File
	enc     *json.Encoder
	dec     *json.Decoder
	mu      sync.Mutex
}

// Spawn starts this program again in a role, on a machine of the lab.
func Spawn(host *lab.Host, role, name string) (*Process, error) {
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
	cmd := exec.Command(self, Flag, role)
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
	return &Process{
		Name: name, running: running, in: requestsW, out: answersR,
		enc: json.NewEncoder(requestsW), dec: json.NewDecoder(answersR),
	}, nil
}

// Pid is the process's number.
func (p *Process) Pid() int { return p.running.Pid() }

// Call asks for op and waits for the answer; takes is how long it is meant to take.
func (p *Process) Call(ctx context.Context, op string, takes time.Duration, args, result any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, takes+Patience)
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
		return fmt.Errorf("%s: %s did not answer: %w", p.Name, op, context.Cause(ctx))
	case err != nil:
		return fmt.Errorf("%s: %s: the process has ended (%w); its own words stand above", p.Name, op, err)
	case res.Error != "":
		return fmt.Errorf("%s: %s", p.Name, res.Error)
	case result == nil:
		return nil
	}
	return json.Unmarshal(res.Result, result)
}

// End closes the pipe, which ends the process.
func (p *Process) End() { p.in.Close() }

// Kill ends the process at once, as a crash would.
func (p *Process) Kill() { p.running.Kill() }

// Wait waits for the end, and makes one where it does not come.
func (p *Process) Wait() {
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
