// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

// Kamailio is the configuration of Kamailio as the registrar and record-routing proxy of one domain,
// whose bindings are in memory.
type Kamailio struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Listen are its addresses, of UDP and TCP alike.
	Listen []netip.AddrPort
	// Domain is its domain, and the realm of passwords.
	Domain string
	// Password is everybody's; "": each user's is the user's name.
	Password string
	// Direct leaves what belongs to a call to its two ends; else Kamailio is on its route.
	Direct bool
	// Workers are its processes for each address of UDP, and for all of TCP; 0: two.
	Workers int
}

// Kamailio writes the configuration below dir and returns the command.
func (p *Peers) Kamailio(dir string, c Kamailio) (*Command, error) {
	i, err := p.instance("kamailio", dir, c.Name)
	if err != nil {
		return nil, err
	}
	modules, err := filepath.Glob(filepath.Join(p.Dir, "root/usr/lib/*/kamailio/modules"))
	if err != nil || len(modules) != 1 {
		return nil, fmt.Errorf("the modules of Kamailio are not in %s: %w", p.Dir, ErrMissing)
	}
	run, err := i.folder(".run")
	if err != nil {
		return nil, err
	}
	return i.command(c.config(modules[0], i.at(kamailioControl)), "-DD", "-E", "-Y", run, "-m", "512", "-M", "16", "-f", i.at(configured))
}

// kamailioControl names the socket by which it is asked.
const kamailioControl = ".ctl"

// KamailioBindings returns the command that prints the bindings of one whose files are below dir.
func (p *Peers) KamailioBindings(dir string, c Kamailio) (*Command, error) {
	i, err := p.instance("kamcmd", dir, c.Name)
	if err != nil {
		return nil, err
	}
	return &Command{Path: i.path, Args: []string{"-s", "unix:" + i.at(kamailioControl), "ul.dump"}}, nil
}

// KamailioContacts reads contacts out of what that command prints.
func KamailioContacts(printed string) (contacts []string) {
	for line := range strings.Lines(printed) {
		if uri, ok := strings.CutPrefix(strings.TrimSpace(line), "Address: "); ok {
			contacts = append(contacts, uri)
		}
	}
	return contacts
}

func (c Kamailio) config(modules, control string) string {
	var b strings.Builder
	b.WriteString("#!KAMAILIO\n")
	workers := c.Workers
	if workers == 0 {
		workers = 2
	}
	// No name is looked up: there is no one to ask.
	fmt.Fprintf(&b, "debug=1\nchildren=%d\ntcp_children=%d\nauto_aliases=no\ndns=no\nrev_dns=no\nuse_dns_cache=no\ndns_try_ipv6=yes\n", workers, workers)
	for _, at := range c.Listen {
		fmt.Fprintf(&b, "listen=udp:%s\nlisten=tcp:%s\n", at, at)
	}
	fmt.Fprintf(&b, "alias=\"%s\"\nmpath=\"%s/\"\n", c.Domain, modules)
	for _, m := range []string{"kex", "tm", "sl", "rr", "pv", "maxfwd", "usrloc", "registrar", "textops", "siputils", "xlog", "auth", "ctl"} {
		fmt.Fprintf(&b, "loadmodule \"%s.so\"\n", m)
	}
	password := `"` + c.Password + `"`
	if c.Password == "" {
		password = `"$au"`
	}
	fmt.Fprintf(&b, "modparam(\"ctl\", \"binrpc\", \"unix:%s\")\nmodparam(\"usrloc\", \"db_mode\", 0)\n", control)
	route := `if (is_method("INVITE")) record_route();`
	if c.Direct {
		route = ""
	}
	fmt.Fprintf(&b, kamailioRoutes, c.Domain, password, route)
	return b.String()
}

// kamailioRoutes are what it does with requests; the domain, the password and what keeps it on
// a call's route are missing.
const kamailioRoutes = `
request_route {
	if (!mf_process_maxfwd_header("10")) { sl_send_reply("483", "Too Many Hops"); exit; }
	if (is_method("CANCEL")) {
		if (t_check_trans()) t_relay();
		exit;
	}
	if (has_totag()) {
		if (loose_route()) { t_relay(); exit; }
		if (is_method("ACK")) {
			if (t_check_trans()) t_relay();
			exit;
		}
		sl_send_reply("404", "Not Here");
		exit;
	}
	if (is_method("REGISTER")) {
		if (!pv_auth_check("%[1]s", %[2]s, "0", "1")) { auth_challenge("%[1]s", "1"); exit; }
		if (!save("location")) sl_reply_error();
		exit;
	}
	%[3]s
	if (is_myself("$ru")) {
		if (!lookup("location")) { sl_send_reply("404", "Not Found"); exit; }
	}
	t_relay();
}
`
