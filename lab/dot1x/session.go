// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dot1x

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Session is what a terminal has had of a port while that was open. hostapd tells a RADIUS server of it, but its driver
// for wires counts nothing: the access router counts what it forwards.
type Session struct {
	ID       string // Acct-Session-Id of hostapd's accounting
	User     string // who the terminal has proved to be
	Up, Down uint64 // octets of IP packets, from the terminal and to it
}

// Sessions are those that have ended.
func (p *Port) Sessions() []Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sessions)
}

// counts are octets of IP packets by direction.
type counts struct{ up, down uint64 }

// counting has counters of what is forwarded from the terminal and to it.
func (p *Port) counting() string {
	return fmt.Sprintf(`table inet dot1x-%s {
	counter up { }
	counter down { }
	chain forward { type filter hook forward priority 0; policy accept; }
}
`, p.iface)
}

// count counts while the port is open: what is forwarded to a closed one is dropped behind that.
func (p *Port) count(open bool) string {
	text := fmt.Sprintf("flush chain inet dot1x-%s forward\n", p.iface)
	if open {
		text += fmt.Sprintf("add rule inet dot1x-%[1]s forward iifname %[1]q counter name up\nadd rule inet dot1x-%[1]s forward oifname %[1]q counter name down\n", p.iface)
	}
	return text
}

// beginSession asks hostapd by what name its accounting calls the session. Without an answer the terminal has gone already,
// and the port is about to close.
func (p *Port) beginSession(terminal string) {
	text, err := p.asks.Ask("STA " + terminal)
	if err != nil {
		return
	}
	var s Session
	for line := range strings.Lines(text) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
		case "dot1xAuthSessionId":
			s.ID = value
		case "dot1xAuthSessionUserName":
			s.User = value
		}
	}
	p.change(func() { p.session = s })
}

// endSession keeps what the session has carried that has ended, if there was one. The port is closed, so that counters stand
// still; or it has opened for a terminal that had it before.
func (p *Port) endSession(ctx context.Context) error {
	p.mu.Lock()
	s := p.session
	p.mu.Unlock()
	if s.ID == "" {
		return nil
	}
	now, err := p.read(ctx)
	if err != nil {
		return err
	}
	s.Up, s.Down = now.up-p.carried.up, now.down-p.carried.down
	p.carried = now
	p.change(func() { p.sessions, p.session = append(p.sessions, s), Session{} })
	return nil
}

// read reads the counters.
func (p *Port) read(ctx context.Context) (c counts, err error) {
	out, err := p.node.Run(ctx, "nft", "--json", "list counters table inet dot1x-"+p.iface)
	if err != nil {
		return c, fmt.Errorf("what %s has carried cannot be read: %w", p.iface, err)
	}
	var list struct {
		Nftables []struct {
			Counter struct {
				Name  string
				Bytes uint64
			}
		}
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return c, fmt.Errorf("what %s has carried cannot be read: %w", p.iface, err)
	}
	for _, one := range list.Nftables {
		switch one.Counter.Name {
		case "up":
			c.up = one.Counter.Bytes
		case "down":
			c.down = one.Counter.Bytes
		}
	}
	return c, nil
}
