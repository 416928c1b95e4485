// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"context"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/host"
	"github.com/isthmus-net/isthmus/internal/kept"
	"github.com/isthmus-net/isthmus/sip/registrar"
)

// openState takes over what an earlier process has left; r.mu is held. After one that has not ended
// in good order sequence numbers begin further on, for the machine may have lost the last ones.
func (r *Registrar) openState(list []registrar.Listener) error {
	if !r.cfg.KeepState {
		return nil
	}
	journal, records, err := kept.OpenJournal(kept.SavedPath(r.cfg.StateFile, r.cfg.Name, name))
	if err != nil {
		return err
	}
	keep := func(flow string) bool {
		t, ok := registrar.ParseFlow(flow)
		return ok && slices.Contains(list, registrar.Listener{Transport: t.Transport, Address: t.Local}) && !t.Reliable()
	}
	unread, bindings := 0, 0
	r.journal.Store(journal) // so that the numbers which are left out are kept at once, whatever ends this process
	r.do(func(p *registrar.Proxy, now time.Time, _ *registrar.Output) {
		for key, record := range records {
			lost, err := p.Restore(key, record, keep, now)
			if r.lost += lost; err != nil {
				unread++
			}
		}
		if !journal.Fresh && !journal.Clean {
			p.SkipNumbers()
		}
		_, bindings = p.Table().Len()
	})
	if r.lost > 0 || unread > 0 {
		r.log.Warn("not all that an earlier process has left goes on", "bindings", bindings, "lost", r.lost, "unreadable", unread)
	}
	return nil
}

// keep writes down what has changed; the loop's mutex is held. If it cannot be written, calls go on,
// and syncAgain tells of it.
func (r *Registrar) keep() {
	if journal := r.journal.Load(); journal != nil {
		r.proxy.Changed(journal.Put)
		_ = journal.Flush()
	}
}

// syncInterval is how much a machine that loses its power forgets.
const syncInterval = time.Second

// syncAgain has what was written reach the disk, again and again.
func (r *Registrar) syncAgain(ctx context.Context) {
	host.Repeat(ctx, syncInterval, func() error {
		journal := r.journal.Load()
		if journal == nil {
			return nil
		}
		err := journal.Flush()
		if err == nil {
			err = journal.Sync()
		}
		if r.setTrouble(err) && err == nil { // what could not be written may be lost
			r.do(func(p *registrar.Proxy, _ time.Time, _ *registrar.Output) { p.ChangeAll() })
		}
		return err
	}, func(err error) { r.log.Error("bindings would not outlive this process", "error", err) })
}

// setTrouble notes whether anything is kept, and reports whether that has changed.
func (r *Registrar) setTrouble(err error) (changed bool) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	changed = r.trouble != text
	r.trouble = text
	return changed
}

// closeState leaves all to a successor; r.mu is held.
func (r *Registrar) closeState() error {
	journal := r.journal.Swap(nil)
	if journal == nil {
		return nil
	}
	return journal.Close()
}
