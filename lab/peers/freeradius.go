// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

// FreeRADIUS is the configuration of FreeRADIUS as a server that authenticates, and may account. It
// needs root.
type FreeRADIUS struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Listen is where it is asked.
	Listen netip.AddrPort
	// Detail is the file of what it is told by accounting, at port 1813 of that address (rlm_detail(5));
	// empty: it is told nothing.
	Detail string
	// Client may ask, by Secret.
	Client netip.Addr
	Secret string
	// Answers are signed, as releases since 3.2.5 do unasked (CVE-2024-3596).
	//
	// Users are the lines of its file of users (users(5)).
	Users string
}

// FreeRADIUS writes the configuration below dir and returns the command, which says "Ready to
// process requests" when it is.
func (p *Peers) FreeRADIUS(dir string, c FreeRADIUS) (*Command, error) {
	i, err := p.instance("freeradius", dir, c.Name)
	if err != nil {
		return nil, err
	}
	modules, err := filepath.Glob(filepath.Join(p.Dir, "root/usr/lib/freeradius"))
	if err != nil || len(modules) != 1 {
		return nil, fmt.Errorf("the modules of FreeRADIUS are not in %s: %w", p.Dir, ErrMissing)
	}
	etc, err := i.folder(".etc")
	if err != nil {
		return nil, err
	}
	users := instance{name: "users", dir: etc}
	if err := users.write("", c.Users); err != nil {
		return nil, err
	}
	server := instance{name: "radiusd", dir: etc}
	if err := server.write(".conf", c.config(etc)); err != nil {
		return nil, err
	}
	return &Command{Path: i.path, Args: []string{"-f", "-l", "stdout", "-X", "-d", etc, "-D", "/usr/share/freeradius"}}, nil
}

func (c FreeRADIUS) config(etc string) string {
	listen, client := "ipaddr", "ipaddr"
	if c.Listen.Addr().Is6() {
		listen = "ipv6addr"
	}
	if c.Client.Is6() {
		client = "ipv6addr"
	}
	detail, accounting := "", ""
	if c.Detail != "" {
		detail, accounting = detailConfig, accountingConfig
	}
	return strings.NewReplacer("@etc", etc, "@listen", listen, "@address", c.Listen.Addr().String(), "@port", fmt.Sprint(c.Listen.Port()),
		"@from", client, "@client", c.Client.String(), "@secret", c.Secret, "@detail", c.Detail).Replace(strings.NewReplacer("@module", detail, "@accounting", accounting).Replace(`
prefix = /usr
logdir = @etc
run_dir = @etc
raddbdir = @etc
libdir = /usr/lib/freeradius
pidfile = @etc/pid
security {
	allow_core_dumps = no
	reject_delay = 0
}
thread pool {
}
client ggsn {
	@from = @client
	secret = "@secret"
	require_message_authenticator = yes
}
modules {
	files {
		filename = @etc/users
	}
	pap {
	}
	chap {
	}
	@module
}
server default {
	listen {
		type = auth
		@listen = @address
		port = @port
	}
	authorize {
		chap
		files
		pap
	}
	authenticate {
		Auth-Type PAP {
			pap
		}
		Auth-Type CHAP {
			chap
		}
	}
	post-auth {
		update reply {
			Message-Authenticator := 0x00
		}
		Post-Auth-Type REJECT {
			update reply {
				Message-Authenticator := 0x00
			}
		}
	}
	@accounting
}
`))
}

// detailConfig and accountingConfig have accounting written down, before it is acknowledged.
const (
	detailConfig = `detail {
		filename = "@detail"
		header = "%t"
		locking = no
	}
`
	accountingConfig = `listen {
		type = acct
		@listen = @address
		port = 1813
	}
	accounting {
		detail
	}
`
)
