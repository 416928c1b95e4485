// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// naptApplicationsName is the name of the experiment.
const naptApplicationsName = "napt-applications"

// naptApplicationWays are the translators that are tried.
var naptApplicationWays = []way{wayTayga, wayUser, wayTC, wayXDP}

// naptPrograms are the translator beside which ours is set, the servers and the clients.
var naptPrograms = []string{
	"tayga", "apache2", "inetutils-inetd", "in.fingerd", "telnetd", "nuttcp", "vsftpd",
	"curl", "finger", "inetutils-telnet", "ping", "traceroute.db", "tnftp",
}

// naptApplications is the experiment napt-applications.
var naptApplications = lab.Experiment{
	Name:      naptApplicationsName,
	Summary:   "web, ttcp, finger, telnet, ping, traceroute and ftp through a translator, and ICMP errors (1998, table 3)",
	NeedsRoot: true,
	Needs:     naptPrograms,
	Run:       runNAPTApplications,
}

// trial is one row and direction of a table: what came of it by way.
type trial struct {
	name, published string
	direction       appDirection
	faults          map[way]error
}

func runNAPTApplications(ctx context.Context, e *lab.Env) error {
	trials, errs, err := tryAll(ctx, e, naptApplicationWays)
	if err != nil {
		return err
	}
	return finish(e, naptApplicationsReport(trials, errs, naptApplicationWays))
}

// directions are those that are tried.
var directions = []appDirection{from6, from4}

// tryAll tries all applications and errors on all ways.
func tryAll(ctx context.Context, e *lab.Env, ways []way) (programs, errs []*trial, err error) {
	for _, a := range applications {
		for _, d := range directions {
			programs = append(programs, &trial{a.name, a.published, d, map[way]error{}})
		}
	}
	for _, c := range errorCases {
		for _, d := range directions {
			if _, ok := c.want[d]; ok {
				errs = append(errs, &trial{c.name, c.published, d, map[way]error{}})
			}
		}
	}
	// Each way has a lab of its own, so that all go at once.
	var wait sync.WaitGroup
	faults := make([]error, len(ways))
	var guard sync.Mutex // of the maps, and of what is printed
	for i, w := range ways {
		wait.Go(func() {
			if err := tryWay(ctx, e, w, &guard, programs, errs); err != nil {
				faults[i] = fmt.Errorf("%s: %w", w.title, err)
			}
		})
	}
	wait.Wait()
	return programs, errs, errors.Join(faults...)
}

// tryWay tries everything on one way.
func tryWay(ctx context.Context, e *lab.Env, w way, guard *sync.Mutex, programs, errs []*trial) error {
	step := func(what string) {
		guard.Lock()
		defer guard.Unlock()
		e.Step("%s: %s", w.title, what)
	}
	step("starting the translator and the servers")
	n, err := newAppNet(ctx, e, w)
	if err != nil {
		return err
	}
	defer n.close()
	if err := n.serveApplications(ctx, e); err != nil {
		return err
	}
	note := func(t *trial, err error) {
		guard.Lock()
		defer guard.Unlock()
		t.faults[w] = err
	}
	for _, a := range applications {
		step(a.name)
		for _, t := range programs {
			if t.name == a.name {
				note(t, a.try(ctx, n, t.direction))
			}
		}
	}
	if err := n.shrink(); err != nil {
		return err
	}
	port := uint16(errorPort)
	for _, c := range errorCases {
		step(c.name)
		for _, t := range errs {
			if t.name == c.name {
				// Each has a session of its own.
				note(t, c.try(ctx, n, t.direction, port))
				port++
			}
		}
	}
	return n.healthy()
}

// naptApplicationsReport is the table of the applications and table 3.
func naptApplicationsReport(programs, errs []*trial, ways []way) *report.Report {
	rep := &report.Report{
		Experiment: naptApplicationsName, Title: "Applications and ICMP errors through one translator", Peer: "tayga",
		Tables: []report.Table{
			trialTable("applications", "application", programs, ways),
			trialTable("ICMP errors, caused as in 1998, as they arrive at the caller", "error", errs, ways),
		},
		Notes: []string{
			"Each cable is bare; between each host and the translator lies a router of its family.",
			"Isthmus is stateful: from the IPv4 side static bindings lead to the IPv6 host. Tayga is stateless and maps one address.",
			"A traceroute is right if each router is there once: those of the IPv4 side by their translated addresses, those of the IPv6 side by the address set for them (RFC 6791).",
			"An error is right if type, code, MTU or pointer, source and checksum are, and the quoted packet is the one that was sent.",
			"The invalid field is found by the lab in the host's place: no kernel finds one in what a translator made.",
		},
	}
	for _, t := range append(append([]*trial(nil), programs...), errs...) {
		for _, w := range ways {
			if err := t.faults[w]; err != nil {
				if w.ours() {
					rep.Fault("%s: %s, %s: %s", w.title, t.name, t.direction, oneLine(err))
				} else {
					rep.Notes = append(rep.Notes, fmt.Sprintf("%s: %s, %s: %s.", w.title, t.name, t.direction, oneLine(err)))
				}
			}
		}
	}
	return rep
}

// trialTable shows what works.
func trialTable(title, first string, trials []*trial, ways []way) report.Table {
	t := report.Table{Title: title, Columns: []string{first, "direction", "1998"}}
	for _, w := range ways {
		t.Columns = append(t.Columns, w.title)
	}
	for _, one := range trials {
		row := []string{one.name, string(one.direction), one.published}
		for _, w := range ways {
			verdict := "works"
			if one.faults[w] != nil {
				verdict = "fails"
			}
			row = append(row, verdict)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// oneLine is an error without line breaks.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
