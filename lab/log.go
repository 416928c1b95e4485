// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of a log.
const (
	// logMemory bounds what is kept in memory of one log; the file has all.
	logMemory = 4 << 20
	// tailLines is how much of a log an error shows.
	tailLines = 12
	// logDrain is how long descendants that keep the pipe of an ended process open
	// may still write.
	logDrain = 100 * time.Millisecond
	// logPipe is how much a pipe holds (pipe(7)).
	logPipe = 64 << 10
)

// processLog is the output of a process: in a file, and its newest part in
// memory, where readers wait for it.
type processLog struct {
	file   *os.File
	source *os.File // the reading end of the process's output
	copied chan struct{}

	mu      sync.Mutex
	text    []byte
	dropped int           // bytes before text
	grown   chan struct{} // closed and replaced at each write
	closed  bool
}

// newProcessLog makes NAME.log, or NAME-2.log and so on if that exists, and
// gives the writing end for the process, which the caller closes.
func newProcessLog(dir, name string) (*processLog, *os.File, error) {
	f, err := createNumbered(dir, name)
	if err != nil {
		return nil, nil, err
	}
	source, output, err := os.Pipe()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return &processLog{file: f, source: source, copied: make(chan struct{}), grown: make(chan struct{})}, output, nil
}

func createNumbered(dir, name string) (*os.File, error) {
	path := filepath.Join(dir, name+".log")
	for i := 2; ; i++ {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if !os.IsExist(err) {
			return f, err
		}
		path = filepath.Join(dir, name+"-"+strconv.Itoa(i)+".log")
	}
}

// copy takes the output of the process until its end. At the read deadline it
// takes what is already in the pipe: it may have been kept waiting.
func (g *processLog) copy() {
	defer close(g.copied)
	buf := make([]byte, 32<<10)
	for {
		n, err := g.source.Read(buf)
		g.append(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			g.drain(buf)
		}
		if err != nil {
			return
		}
	}
}

// drain takes what the pipe holds, without waiting for more, and no more than a
// pipe holds: who writes on has had its time.
func (g *processLog) drain(buf []byte) {
	raw, err := g.source.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for left := logPipe; left > 0; {
			n, err := unix.Read(int(fd), buf)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || n <= 0 {
				return
			}
			g.append(buf[:n])
			left -= n
		}
	})
}

func (g *processLog) append(b []byte) {
	_, _ = g.file.Write(b)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.text = append(g.text, b...)
	if over := len(g.text) - logMemory; over > 0 {
		over += logMemory / 4
		g.text = append(g.text[:0], g.text[over:]...)
		g.dropped += over
	}
	close(g.grown)
	g.grown = make(chan struct{})
}

// finish takes what the ended process still wrote. A descendant that lives on
// holds the pipe open, so that its end cannot be waited for.
func (g *processLog) finish() {
	_ = g.source.SetReadDeadline(time.Now().Add(logDrain))
	<-g.copied
	g.discard()
}

// discard closes the log.
func (g *processLog) discard() {
	g.source.Close()
	g.file.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	close(g.grown)
}

// from gives the log after a position, the position behind it, and what to
// wait on for more; done says that there will be none.
func (g *processLog) from(position int) (text []byte, next int, grown <-chan struct{}, done bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	start := max(position-g.dropped, 0)
	return bytes.Clone(g.text[start:]), g.dropped + len(g.text), g.grown, g.closed
}

// tail gives the last lines for an error message.
func (g *processLog) tail() string {
	text, _, _, _ := g.from(0)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return "; it wrote nothing"
	}
	return "; it wrote at last:\n\t" + strings.Join(lines[max(0, len(lines)-tailLines):], "\n\t")
}

// Log is what the process wrote on standard output and standard error; of a
// very long log the newest part.
func (p *Proc) Log() string {
	text, _, _, _ := p.log.from(0)
	return string(text)
}

// LogFile is the path of the log.
func (p *Proc) LogFile() string { return p.log.file.Name() }

// WaitFor waits until the process writes a line that matches the regular
// expression, and gives that line. It fails when the process or ctx ends.
func (p *Proc) WaitFor(ctx context.Context, pattern string) (string, error) {
	match, err := regexp.Compile(pattern)
	if err != nil {
		return "", err
	}
	var line []byte
	position := 0
	for {
		text, next, grown, done := p.log.from(position)
		position = next
		line = append(line, text...)
		for {
			head, rest, whole := bytes.Cut(line, []byte("\n"))
			if (whole || done) && match.Match(head) {
				return string(head), nil
			}
			if !whole {
				break
			}
			line = rest
		}
		if done {
			return "", fmt.Errorf("%s in node %s ended before it wrote %q%s", p.name, p.node.name, pattern, p.log.tail())
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return "", fmt.Errorf("%s in node %s did not write %q: %w%s", p.name, p.node.name, pattern, ctx.Err(), p.log.tail())
		}
	}
}
