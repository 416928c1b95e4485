// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Charge is the charging record of a context that has ended, with what TS 32.251 wants of a G-CDR.
type Charge struct {
	// Session is the Acct-Session-Id of the same context, Node the name of this one, Gateways its
	// addresses.
	Session  string       `json:"session"`
	Node     string       `json:"node"`
	Gateways []netip.Addr `json:"ggsn"`
	Context
	User      string `json:"user,omitempty"`
	IMEI      string `json:"imeisv,omitempty"`
	Selection *uint8 `json:"selection_mode,omitempty"`
	Charging  string `json:"charging_characteristics,omitempty"` // hexadecimal
	RAT       uint8  `json:"rat,omitempty"`
	QoS       string `json:"qos"`
	// Closed is when it ended, Duration how long it lasted, in seconds, Cause why it ended; Last tells
	// that its session has no other context.
	Closed   time.Time `json:"closed"`
	Duration int64     `json:"duration"`
	Cause    string    `json:"cause"`
	Last     bool      `json:"last"`
}

// charger writes charging records, each a line, before the answer to the SGSN leaves. It opens the
// file each time, so that others may move it away.
type charger struct {
	log     *slog.Logger
	path    string
	name    string
	at      []netip.Addr
	lines   []byte
	written atomic.Uint64 // records
	lost    atomic.Uint64
	failing bool
}

// newCharger makes one; nil: there is no file.
func newCharger(cfg *Settings, log *slog.Logger) *charger {
	if cfg.ChargingFile == "" {
		return nil
	}
	return &charger{log: log, path: cfg.ChargingFile, name: cfg.Name, at: cfg.addresses()}
}

// add writes records of the contexts that have ended; the loop of the engine has its mutex.
func (c *charger) add(events []ggsn.Event) {
	c.lines = c.lines[:0]
	n := uint64(0)
	for i := range events {
		if e := &events[i]; e.Kind == ggsn.ContextDeleted && e.Context.Account != nil {
			line, _ := json.Marshal(c.charge(e)) // nothing in it can fail
			c.lines = append(append(c.lines, line...), '\n')
			n++
		}
	}
	if n == 0 {
		return
	}
	err := c.write()
	if err == nil {
		c.written.Add(n)
	} else {
		c.lost.Add(n)
	}
	if failing := err != nil; failing != c.failing {
		if c.failing = failing; failing {
			c.log.Error("charging records are lost", "error", err)
		} else {
			c.log.Info("charging records are written again")
		}
	}
}

func (c *charger) write() error {
	file, err := os.OpenFile(c.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(appendLines(file, c.lines), file.Close())
}

// appendLines appends all lines, or none where the disk is full. Half a line, which a crash has left, does not
// become one with the first of them.
func appendLines(file *os.File, lines []byte) error {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil || len(lines) == 0 {
		return err
	}
	last := []byte{'\n'}
	if end > 0 {
		if _, err := file.ReadAt(last, end-1); err != nil {
			return err
		}
	}
	if last[0] != '\n' {
		lines = append([]byte{'\n'}, lines...)
	}
	if _, err = file.Write(lines); err != nil {
		return errors.Join(err, file.Truncate(end))
	}
	return nil
}

// charge is the record of a context that has ended.
func (c *charger) charge(e *ggsn.Event) Charge {
	x := &e.Context
	of := x.Account
	r := Charge{
		Session: sessionID(c.at[0], x.ChargingID, x.Created), Node: c.name, Gateways: c.at, Context: contextOf(x), User: string(of.User),
		RAT: uint8(of.RAT.Value), QoS: qosText(x.QoS), Closed: e.Time.UTC().Truncate(time.Second), Duration: int64(e.Age / time.Second),
		Cause: e.End.String(), Last: e.Last,
	}
	if of.IMEI.Present {
		r.IMEI = of.IMEI.Value.String()
	}
	if of.Selection.Present {
		mode := uint8(of.Selection.Value)
		r.Selection = &mode
	}
	if of.Charging.Present {
		r.Charging = fmt.Sprintf("%04x", of.Charging.Value)
	}
	return r
}

// collect reports what was written; of nil it does nothing.
func (c *charger) collect(emit func(role.Metric)) {
	if c == nil {
		return
	}
	emit(role.Count("charging_records_total", "Charging records written.", c.written.Load()))
	emit(role.Count("charging_lost_total", "Charging records that could not be written.", c.lost.Load()))
}
