// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
)

// waiting are the branches of INVITEs that nothing has answered, by the address of record whose contact they
// have gone to.
type waiting map[string]map[*fork]struct{}

func (w waiting) add(f *fork) {
	if w[f.goal.aor] == nil {
		w[f.goal.aor] = map[*fork]struct{}{}
	}
	w[f.goal.aor][f] = struct{}{}
}

func (w waiting) remove(f *fork) {
	if delete(w[f.goal.aor], f); len(w[f.goal.aor]) == 0 {
		delete(w, f.goal.aor)
	}
}

// maxFollowing bounds the branches that are looked at with one REGISTER: more wait for nobody but who is
// flooded.
const maxFollowing = 64

// follow has INVITEs go where their callee has just registered, if nothing has answered them at the contact
// that he no longer has: targets may be added until there is a final response (RFC 3261 section 16.5). A call
// that comes in while a terminal moves would be lost else, for there it is repeated in vain until Timer B.
func (p *Proxy) follow(owner *account, now time.Time, out *Output) {
	for _, aor := range owner.aors {
		looked := 0
		for f := range p.waiting[aor] {
			if looked++; looked > maxFollowing {
				break
			}
			g, moved := p.instead(f, now)
			if !moved {
				continue
			}
			// The old branch is no longer waited for. Whatever comes of it yet counts, as of any branch: who is
			// still there answers the one that comes first, and the other with 482.
			p.waiting.remove(f)
			f.left, f.final = true, message.Reply(f.call.server.Request, 408, "Request Timeout", "")
			p.fork(f.call, &g, now, out)
			p.advance(f.call, now, out)
		}
	}
}

// instead is the target that takes the place of one that is a contact no more.
func (p *Proxy) instead(f *fork, now time.Time) (goal, bool) {
	c := f.call
	if c.answered || c.cancelled || len(c.forks) >= p.settings.MaxForks || p.stands(&f.goal, now) {
		return goal{}, false
	}
	u, _ := message.ParseURI(c.request.URI)
	found := p.search(f.goal.aor, u.Scheme == "sips", now).goals
	i := slices.IndexFunc(found, func(g goal) bool { return !c.tries(&g) })
	if i < 0 {
		return goal{}, false
	}
	return found[i], true
}

// stands reports whether a target is still a contact, reached by the same way.
func (p *Proxy) stands(g *goal, now time.Time) bool {
	return slices.ContainsFunc(p.bindings(g.aor, now), func(b location.Binding) bool {
		return b.URI.Equal(&g.binding.URI) && (g.flow == "" || b.Flow == g.flow)
	})
}

// tries reports whether a target is among those of a call.
func (c *call) tries(g *goal) bool {
	same := func(other *goal) bool { return other.uri == g.uri && other.flow == g.flow }
	return slices.ContainsFunc(c.forks, func(f *fork) bool { return same(&f.goal) }) ||
		slices.ContainsFunc(c.goals, func(other goal) bool { return same(&other) })
}
