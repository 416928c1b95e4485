// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/lab"
)

// subject is the Isthmus whose state is to outlive its processes.
type subject struct {
	instance
	section func() string // of the configuration, as it is to be now
	process *lab.Proc
	all     []*lab.Proc // that there have been
}

// subjectMetrics is where a subject tells its values, on its own node.
var subjectMetrics = netip.MustParseAddrPort("127.0.0.1:9464")

// configure writes the configuration.
func (s *subject) configure() error {
	return s.instance.configure(fmt.Sprintf("[metrics]\nlisten = %q\n\n%s", subjectMetrics, s.section()))
}

// launch starts a process, and does not wait for its service.
func (s *subject) launch(ctx context.Context) error {
	p, err := s.instance.launch(ctx, "isthmus")
	if err == nil {
		s.process, s.all = p, append(s.all, p)
	}
	return err
}

// told is what each process has said when it began to serve, of what it took over, and of what
// is not as it should be.
func (s *subject) told() (lines []string) {
	words := regexp.MustCompile("level=(WARN|ERROR)|earlier process|msg=serving")
	for _, p := range s.all {
		for line := range strings.Lines(p.Log()) {
			if words.MatchString(line) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	return lines
}

// start starts a process, and waits until it serves.
func (s *subject) start(ctx context.Context) error {
	if err := s.launch(ctx); err != nil {
		return err
	}
	return running(ctx, s.process)
}

// end ends the process. Whoever is not killed ends with status 0.
func (s *subject) end(signal unix.Signal) error {
	if err := s.process.Signal(signal); err != nil {
		return fmt.Errorf("no process for signal %v: %w", signal, err)
	}
	select {
	case <-s.process.Done():
	case <-time.After(daemonStart):
		return errors.Join(fmt.Errorf("the process goes on %v after signal %v", daemonStart, signal), s.process.Stop())
	}
	if err := s.process.Wait(); err != nil && signal != unix.SIGKILL {
		return fmt.Errorf("after signal %v: %w", signal, err)
	}
	return nil
}

// runs reports whether the process has not ended.
func (s *subject) runs() bool {
	select {
	case <-s.process.Done():
		return false
	default:
		return true
	}
}

// reload has the process read its configuration again, as an operator does.
func (s *subject) reload(ctx context.Context) error {
	if err := s.configure(); err != nil {
		return err
	}
	_, err := s.node.Run(ctx, s.binary, "reload", "--socket", s.socket())
	return err
}

// descriptors is how many files the process has open.
func (s *subject) descriptors() (int, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.process.PID()))
	return len(list), err
}

// scrape asks the process for its values, as Prometheus does.
func (s *subject) scrape(ctx context.Context) (map[string]float64, error) {
	var dialer net.Dialer
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = s.node.Do(func() error { conn, err = dialer.DialContext(ctx, network, address); return err })
			return conn, err
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%v/metrics", subjectMetrics), nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	values := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if at := strings.LastIndexByte(line, ' '); at > 0 {
			if v, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64); err == nil {
				values[line[:at]] = v
			}
		}
	}
	return values, err
}
