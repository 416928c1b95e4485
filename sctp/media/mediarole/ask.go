// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
)

// questions are what a media server answers.
var questions = []role.Question{
	role.Answer("sessions", func(i *Instance, _ struct{}) (Sessions, error) { return i.list(), nil }),
}

// asks are the command line of these.
type asks struct {
	Sessions role.Ask[struct{}, Sessions] `cmd:"" help:"List the associations, with what they send by which path."`
	Stats    role.Stats                   `cmd:"" help:"Show what was sent, received and dropped."`
}

// Sessions are the associations of a server.
type Sessions struct {
	List []Session `json:"sessions"`
}

// Session is an association.
type Session struct {
	Peer   string    `json:"peer"`
	Since  time.Time `json:"since"`
	Source string    `json:"source,omitempty"`
	Sent   uint64    `json:"sent_octets"`
	Total  uint64    `json:"total_octets"`
	Path   string    `json:"path"`
	RTO    string    `json:"rto"`
	CWND   int       `json:"cwnd"`
	Paths  int       `json:"paths"`
}

// list shows the sessions, the oldest first.
func (i *Instance) list() (all Sessions) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for s := range i.sessions {
		st := s.conn.Status()
		one := Session{Peer: s.conn.RemoteAddr().String(), Since: s.began, Path: st.Current.Local.String() + ">" + st.Current.Remote.String(), Paths: len(st.Paths)}
		s.mu.Lock()
		if t := s.current; t != nil {
			one.Source, one.Sent, one.Total = t.name, t.sent, t.answer.Total
		}
		s.mu.Unlock()
		for _, p := range st.Paths {
			if p.Pair == st.Current {
				one.RTO, one.CWND = p.RTO.String(), p.CWND
			}
		}
		all.List = append(all.List, one)
	}
	slices.SortFunc(all.List, func(a, b Session) int { return a.Since.Compare(b.Since) })
	return all
}

// Nothing implements [role.Emptiness].
func (s Sessions) Nothing() string {
	if len(s.List) == 0 {
		return "there are no associations"
	}
	return ""
}

// Write implements [role.Table].
func (s Sessions) Write(w io.Writer) {
	fmt.Fprintln(w, "PEER\tSOURCE\tSENT\tOF\tPATH\tRTO\tCWND\tPATHS")
	for _, one := range s.List {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%d\t%d\n", one.Peer, cmp.Or(one.Source, "-"), one.Sent, one.Total, one.Path, one.RTO, one.CWND, one.Paths)
	}
}
