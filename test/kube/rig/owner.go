// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// prefix begins every name that a rig gives to something outside its own directory.
const prefix = "tmbk-"

// newID names a rig by its owner: pid, start time of that pid, and a few random digits, because one process
// may make several. A dead owner is thereby known from the name alone.
func newID() (string, error) {
	start, err := startTime(os.Getpid())
	if err != nil {
		return "", fmt.Errorf("read the own start time: %w", err)
	}
	var salt [1]byte
	if _, err := rand.Read(salt[:]); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%d.%s.%s", prefix, os.Getpid(), strconv.FormatUint(start, 36), hex.EncodeToString(salt[:])), nil
}

// ownerDead says whether name carries a rig's name whose owner no longer runs. Names of anything else, and
// of the living, are false.
func ownerDead(name string) (id string, dead bool) {
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return "", false
	}
	rest, _, _ = strings.Cut(rest, "-") // after the id may follow "-c1-node"
	parts := strings.Split(rest, ".")
	if len(parts) != 3 {
		return "", false
	}
	pid, err := strconv.Atoi(parts[0])
	if err != nil || pid <= 0 {
		return "", false
	}
	start, err := strconv.ParseUint(parts[1], 36, 64)
	if err != nil {
		return "", false
	}
	now, err := startTime(pid)
	return prefix + rest, errors.Is(err, fs.ErrNotExist) || (err == nil && now != start)
}

// startTime is field 22 of /proc/PID/stat: ticks since boot. A pid that was given out again has another one.
// A zombie counts as gone: it owns nothing any more.
func startTime(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	end := strings.LastIndexByte(string(text), ')') // the name before it may hold blanks
	fields := strings.Fields(string(text[end+1:]))
	if end < 0 || len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat is not understood: %q", pid, text)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, fmt.Errorf("process %d is dead: %w", pid, fs.ErrNotExist)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}
