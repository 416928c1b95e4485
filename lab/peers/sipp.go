// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Sipp is one run of sipp, which plays a scenario so many times and ends: with status 0 if each of
// them went as it is written.
type Sipp struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Scenario is the text of the scenario, Standard the name of one that sipp brings along instead.
	Scenario, Standard string
	// Domain is the one whose users have passwords.
	Domain string
	// User is the one that is called in a scenario of sipp's own.
	User string
	// Local and Remote are the addresses of SIP. A server has no remote one.
	Local, Remote netip.AddrPort
	// TCP speaks over one connection.
	TCP bool
	// Calls are played, Rate a second.
	Calls, Rate int
	// Open is how many of them are open at a time at most, 0 for all.
	Open int
	// Users are those that play the calls in turn. A scenario has the name of one as [field0], and as
	// [field1] the answer to a challenge: passwords are names.
	Users []string
}

// Sipp writes the scenario below dir and returns the command.
func (p *Peers) Sipp(dir string, c Sipp) (*Command, error) {
	i, err := p.instance("sipp", dir, c.Name)
	if err != nil {
		return nil, err
	}
	transport := "u1"
	if c.TCP {
		transport = "t1"
	}
	args := []string{"-sf", i.at(configured)}
	if c.Standard != "" {
		args = []string{"-sn", c.Standard, "-s", c.User}
	}
	args = append(args, "-t", transport, "-i", bracketed(c.Local.Addr()), "-p", fmt.Sprint(c.Local.Port()),
		"-auth_uri", c.Domain, "-m", fmt.Sprint(c.Calls), "-r", fmt.Sprint(c.Rate), "-l", fmt.Sprint(cmp.Or(c.Open, c.Calls)), "-nostdin", "-timeout", "60s", "-timeout_error", "-watchdog_interval", "0",
		"-trace_err", "-error_file", i.at(sippErrors), "-trace_stat", "-stf", i.at(sippCounted))
	if len(c.Users) > 0 {
		if err := i.write(".csv", c.users()); err != nil {
			return nil, err
		}
		args = append(args, "-inf", i.at(".csv"))
	}
	if c.Remote.IsValid() {
		args = append(args, c.Remote.String())
	}
	return i.command(c.Scenario, args...)
}

// sippCounted names the file of what a run has counted.
const sippCounted = ".stat"

// sippErrors names the file of what went wrong in a run.
const sippErrors = ".errors"

// SippErrors is the beginning of what went wrong in a run whose files are below dir; "" if nothing did.
func SippErrors(dir, name string) string {
	const enough = 300
	text, _ := os.ReadFile(filepath.Join(dir, name+sippErrors)) // made with the first error
	return strings.Join(strings.Fields(string(text[:min(len(text), enough)])), " ")
}

// SippFailed is how many calls have failed in a run that has ended, whose files are below dir.
func SippFailed(dir, name string) (failed int, err error) {
	file := filepath.Join(dir, name+sippCounted)
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("what sipp has counted cannot be read: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	values := strings.Split(lines[len(lines)-1], ";")
	column := slices.Index(strings.Split(lines[0], ";"), "FailedCall(C)")
	if len(lines) < 2 || column < 0 || column >= len(values) {
		return 0, fmt.Errorf("%s does not say how many calls have failed", file)
	}
	return strconv.Atoi(values[column])
}

// users is the file of those that play.
func (c Sipp) users() string {
	var b strings.Builder
	b.WriteString("SEQUENTIAL\n")
	for _, name := range c.Users {
		fmt.Fprintf(&b, "%s;[authentication username=%s password=%s]\n", name, name, name)
	}
	return b.String()
}

// bracketed writes an address as sipp has it.
func bracketed(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}
