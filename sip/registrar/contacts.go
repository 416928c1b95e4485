// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
)

// briefBelow is where a registrar may call a lifetime too brief (RFC 3261 section 10.3, number 7).
const briefBelow = time.Hour

// registration reads what a REGISTER asks for, and whether outbound is applied (RFC 5626 section
// 6). Refused is the response where it cannot be done.
func (e *Engine) registration(m *message.Message, from Source) (r *location.Registration, outbound bool, refused *message.Message) {
	cseq, _, _ := m.CSeq()
	r = &location.Registration{CallID: m.CallID(), CSeq: cseq, Path: m.All("Path"), Flow: from.Flow}
	values := m.All("Contact")
	if slices.Contains(values, "*") {
		if len(values) > 1 || m.Get("Expires") != "0" {
			return nil, false, e.refuse(m, BadContact, 400, "Bad Contact")
		}
		r.All = true
		return r, false, nil
	}
	option := m.HasToken("Supported", "outbound")
	applicable := e.firstHop(m)
	live, flows := 0, 0
	for _, value := range values {
		c, reg, ok := e.contact(value, m, from)
		if !ok {
			return nil, false, e.refuse(m, BadContact, 400, "Bad Contact")
		}
		if reg != 0 && !applicable {
			if option {
				return nil, false, e.refuse(m, NoOutbound, 439, "First Hop Lacks Outbound Support")
			}
			reg = 0
		}
		if c.Lifetime > 0 {
			live++
			if c.Lifetime < e.settings.MinExpires && c.Lifetime < briefBelow {
				refused := e.refuse(m, TooBrief, 423, "Interval Too Brief")
				refused.Add("Min-Expires", seconds(e.settings.MinExpires))
				return nil, false, refused
			}
		}
		if c.RegID = reg; reg != 0 && c.Lifetime > 0 {
			flows++
		}
		r.Contacts = append(r.Contacts, c)
	}
	if flows > 0 && live > 1 {
		return nil, false, e.refuse(m, BadContact, 400, "Bad Contact")
	}
	if !bindsSecurely(m, r.Contacts) {
		return nil, false, e.refuse(m, BadContact, 400, "Bad Contact")
	}
	return r, flows > 0 && option, nil
}

// firstHop reports whether outbound can be applied: the registrar is the first hop, or that one
// has said that it can (RFC 5626 section 6).
func (e *Engine) firstHop(m *message.Message) bool {
	if len(m.All("Via")) == 1 {
		return true
	}
	paths := m.All("Path")
	if len(paths) == 0 {
		return false
	}
	first, err := message.ParseAddress(paths[0])
	return err == nil && first.URI.Params.Has("ob")
}

// contact reads one contact with its reg-id, which needs an instance.
func (e *Engine) contact(value string, m *message.Message, from Source) (c location.Contact, reg uint32, ok bool) {
	a, err := message.ParseAddress(value)
	if err != nil {
		return c, 0, false
	}
	c = location.Contact{URI: a.URI, Params: a.Params.Without("q", "expires"), Lifetime: e.settings.DefaultExpires}
	c.ByURI = from.Holds != nil && !from.Holds(&a)
	if c.Q, ok = a.Q(); !ok {
		return c, 0, false
	}
	asked, there := a.Params.Get("expires")
	if !there {
		asked, there = m.Get("Expires"), m.Has("Expires")
	}
	// A lifetime that is none is the default one (RFC 4475 section 3.1.2.4).
	if n, err := strconv.ParseUint(asked, 10, 32); there && err == nil {
		c.Lifetime = min(time.Duration(n)*time.Second, e.settings.MaxExpires)
	}
	c.Instance, _ = a.Params.Get("+sip.instance")
	if id, there := a.Params.Get("reg-id"); there && c.Instance != "" {
		n, err := strconv.ParseUint(id, 10, 31)
		if err != nil || n == 0 {
			return c, 0, false
		}
		reg = uint32(n)
	}
	return c, reg, true
}

// writeQ writes a preference below 1.
func writeQ(q uint16) string { return fmt.Sprintf("0.%03d", q) }

// seconds writes a time in whole seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
