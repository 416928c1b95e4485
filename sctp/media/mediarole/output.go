// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/role"
)

// output is where the media go: a file that has its name once all is well. Until the first octet comes, what an
// interrupted transfer has left in it stays.
type output struct {
	to    io.Writer
	file  *os.File // nil: it is none
	name  string
	force bool  // another file of that name is replaced
	keep  int64 // octets that others go behind
	begun bool  // octets beyond keep are gone
}

const unfinished = ".part"

func (g *Get) output(to role.Screen) (*output, error) {
	switch {
	case g.Discard:
		return &output{to: io.Discard}, nil
	case g.Output == "-":
		return &output{to: to.Out}, nil
	}
	o := &output{name: g.Output, force: g.Force}
	if o.name == "" {
		o.name = path.Base(g.Name)
	}
	if o.taken() {
		return nil, fmt.Errorf("%s is there already: write --force, or another --output", o.name)
	}
	f, err := create(o.name + unfinished)
	if err != nil {
		return nil, err
	}
	o.to, o.file = f, f
	if err := o.goOn(g.Offset); err != nil {
		return nil, errors.Join(err, o.finish(false))
	}
	return o, nil
}

// goOn has a transfer from an offset on go behind the octets before it, if an interrupted one has left these.
func (o *output) goOn(offset uint64) error {
	info, err := o.file.Stat()
	if err != nil || offset == 0 || info.Size() == 0 {
		return err
	}
	if uint64(info.Size()) != offset {
		return fmt.Errorf("%s has %d octets of an interrupted transfer: --offset %d gets those behind them; else remove it, or write another --output",
			o.file.Name(), info.Size(), info.Size())
	}
	o.keep = info.Size()
	return nil
}

// Write implements [io.Writer].
func (o *output) Write(b []byte) (int, error) {
	if err := o.begin(); err != nil {
		return 0, err
	}
	return o.to.Write(b)
}

// begin makes room for what comes.
func (o *output) begin() error {
	if o.file == nil || o.begun {
		return nil
	}
	o.begun = true
	_, err := o.file.Seek(o.keep, io.SeekStart)
	return errors.Join(err, o.file.Truncate(o.keep))
}

// taken reports whether there is a file of the name that is not to be replaced.
func (o *output) taken() bool {
	_, err := os.Lstat(o.name)
	return err == nil && !o.force
}

// create opens a file that no other transfer writes to, as an interrupted one has left it.
func create(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o666)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK || err == nil && !named(f, name) { // or it has got its name meanwhile
		err = fmt.Errorf("%s is being written by another transfer: wait for its end, or write another --output", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// named reports whether a name is that of an open file.
func named(f *os.File, name string) bool {
	ours, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(name)
	return err == nil && os.SameFile(ours, there)
}

// finish gives the file its name if all is well; else what there is of it stays with its own. The first call counts.
func (o *output) finish(well bool) (err error) {
	if o.file == nil {
		return nil
	}
	if well {
		err = o.begin() // nothing may have come
	}
	f := o.file
	o.file = nil
	switch info, failed := f.Stat(); {
	case err != nil:
	case !well && failed == nil && info.Size() == 0:
		err = os.Remove(f.Name())
	case !well:
	case o.taken():
		err = fmt.Errorf("%s is there by now: what has come is in %s", o.name, f.Name())
	default:
		if err = f.Sync(); err == nil { // what the disk has no room for shows then
			err = os.Rename(f.Name(), o.name)
		}
	}
	return errors.Join(err, f.Close()) // until then no other transfer writes to it
}
