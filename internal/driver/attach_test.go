// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/isthmus-net/isthmus/fastpath"
)

// table is one without programs.
type table struct{ programs fastpath.Programs }

func (t *table) Programs() fastpath.Programs           { return t.programs }
func (*table) Trace(every, perSecond int)              {}
func (*table) Samples() (*ringbuf.Reader, error)       { return nil, nil }
func (*table) Reason(uint8) string                     { return "" }
func (*table) Counters() ([]fastpath.Counter, error)   { return nil, nil }
func (*table) Close() error                            { return nil }
func (*table) Bump()                                   {}
func (*table) Routes4() []byte                         { return nil }
func (*table) Neighbours() ([]fastpath.NextHop, error) { return nil, nil }
func (*table) Beat(time.Duration)                      {}
func (*table) Devices() []int                          { return nil }
func (*table) SetDevice(fastpath.Device) error         { return nil }
func (*table) RemoveDevice(int)                        {}
func (*table) Adopted() bool                           { return false }
func (*table) Unpin() error                            { return nil }

// Two problems that stay are two lines of the log, however often the driver looks.
func TestProblemsThatStayAreLoggedOnce(t *testing.T) {
	for _, mode := range []fastpath.Mode{fastpath.ModeTC, fastpath.ModeOff} {
		t.Run(string(mode), func(t *testing.T) {
			var log bytes.Buffer
			f := New(Role{
				Name: "test", Steer: func() *Steering { return new(Steering) },
			}, Config{Mode: mode, Devices: []string{"missing"}}, slog.New(slog.NewTextHandler(&log, nil)))
			f.table = new(table)
			f.settle()
			if n := bytes.Count(log.Bytes(), []byte("\n")); n < 2 {
				t.Errorf("%d lines at first:\n%s", n, &log)
			}
			log.Reset()
			f.settle()
			f.settle()
			if log.Len() > 0 {
				t.Errorf("said again:\n%s", &log)
			}
		})
	}
}
