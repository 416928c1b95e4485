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

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/role"
)

// charger writes charging records, each a line, before the answer to the SGSN leaves. It opens the
// file each time, so that others may move it away.
type charger struct {
	log     *slog.Logger
	path    string
	name    string
	at      []netip.Addr
	number  uint64   // of the last record
	held    *os.File // the file with it, which is locked; nil: not open
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

// open goes on with the numbers of an earlier process, and tells whether records can be written.
func (c *charger) open() error {
	err := c.readNumber()
	if errors.Is(err, errNoNumber) {
		c.log.Error("the numbers of charging records begin again", "error", err)
		err = nil
	}
	if err := errors.Join(err, c.hold()); err != nil {
		return err
	}
	return errors.Join(c.writeNumber(), c.write()) // no record yet
}

// hold keeps others from the file: two nodes would give their records the same numbers.
func (c *charger) hold() (err error) {
	if c.held, err = os.OpenFile(c.numberPath(), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600); err != nil {
		return err
	}
	if unix.Flock(int(c.held.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return errors.Join(fmt.Errorf("another node writes to %s", c.path), c.close())
	}
	return nil
}

// close lets others have the file; of nil it does nothing.
func (c *charger) close() (err error) {
	if c != nil && c.held != nil {
		err, c.held = c.held.Close(), nil
	}
	return err
}

// add writes records; the loop of the engine has its mutex. Their numbers are on disk first: one that is missing
// is a record that was lost.
func (c *charger) add(records []ggsn.Record) {
	if len(records) == 0 {
		return
	}
	c.lines = c.lines[:0]
	for i := range records {
		c.number++
		line, _ := json.Marshal(c.charge(&records[i])) // nothing in it can fail
		c.lines = append(append(c.lines, line...), '\n')
	}
	unnumbered, err := c.writeNumber(), c.write()
	if err == nil {
		c.written.Add(uint64(len(records)))
	} else {
		c.lost.Add(uint64(len(records)))
	}
	c.tell(unnumbered, err)
}

// tell logs once that something fails, and once that it does no more.
func (c *charger) tell(unnumbered, lost error) {
	failing := unnumbered != nil || lost != nil
	if failing == c.failing {
		return
	}
	switch c.failing = failing; {
	case lost != nil:
		c.log.Error("charging records are lost", "error", lost)
	case failing:
		c.log.Error("charging records will have numbers that came before, after a restart", "error", unnumbered)
	default:
		c.log.Info("charging records are written again")
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

// numberPath is the file with the number of the last record.
func (c *charger) numberPath() string { return c.path + ".number" }

// A number is written over the one before it, in one piece, so that whoever is killed leaves one of both.
const numberForm = "%020d\n"

var errNoNumber = errors.New("this is no number of a charging record")

func (c *charger) readNumber() error {
	file, err := os.OpenFile(c.numberPath(), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(file, 64))
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	var n uint64
	if _, err := fmt.Sscanf(string(text), "%d", &n); err != nil || fmt.Sprintf(numberForm, n) != string(text) {
		return fmt.Errorf("%w: %q in %s", errNoNumber, text, c.numberPath())
	}
	c.number = n
	return nil
}

func (c *charger) writeNumber() error {
	file, err := os.OpenFile(c.numberPath(), os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(fmt.Appendf(nil, numberForm, c.number), 0)
	return errors.Join(err, file.Close())
}

// collect reports what was written; of nil it does nothing.
func (c *charger) collect(emit func(role.Metric), s *ggsn.Stats) {
	if c == nil {
		return
	}
	for cause := range ggsn.Closing(ggsn.NumClosings) {
		emit(role.Metric{Name: "charging_closed_total", Kind: role.Counter, Help: "Charging records closed, by cause.", Reason: cause.String(), Value: float64(s.Records[cause])})
	}
	emit(role.Count("charging_records_total", "Charging records written.", c.written.Load()))
	emit(role.Count("charging_lost_total", "Charging records that could not be written.", c.lost.Load()))
}
