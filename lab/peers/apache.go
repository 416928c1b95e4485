// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Apache is the configuration of the web server.
type Apache struct {
	// Name distinguishes instances; it names the files.
	Name string
	// Port is where it listens, on all addresses.
	Port uint16
	// Root is the folder of the pages, readable by everybody.
	Root string
}

// apacheModules are those that serving files takes.
var apacheModules = []string{"mpm_event", "authz_core", "dir"}

// Apache writes the configuration below dir and returns the command.
func (p *Peers) Apache(dir string, c Apache) (*Command, error) {
	i, err := p.instance("apache2", dir, c.Name)
	if err != nil {
		return nil, err
	}
	config := c.config(i.dir, filepath.Join(p.Dir, "root/usr/lib/apache2/modules"))
	return i.command(config, "-d", i.dir, "-f", i.at(configured), "-DFOREGROUND")
}

func (c Apache) config(dir, modules string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ServerName %s.example\nListen %d\nPidFile %s\nDefaultRuntimeDir %s\n", c.Name, c.Port, filepath.Join(dir, c.Name+".pid"), dir)
	for _, m := range apacheModules {
		fmt.Fprintf(&b, "LoadModule %s_module %s\n", m, filepath.Join(modules, "mod_"+m+".so"))
	}
	// Its own account does not exist where its package is only unpacked.
	fmt.Fprintf(&b, "User nobody\nGroup #%d\nErrorLog /dev/stderr\nLogLevel warn\n", nobodyGroup)
	fmt.Fprintf(&b, "DocumentRoot %s\nDirectoryIndex index.html\n<Directory %s>\nRequire all granted\n</Directory>\n", c.Root, c.Root)
	return b.String()
}

// nobodyGroup is the group of no one, which systems name differently.
const nobodyGroup = 65534
