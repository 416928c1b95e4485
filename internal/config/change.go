// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// command parses a program with its arguments. No shell looks at it, so that no
// text from the network can become a command.
func command(raw any) ([]string, *fault) {
	const example = `write it like ["/usr/local/bin/moved", "argument"], or [] for none`
	if _, ok := raw.([]any); !ok {
		return nil, wrong(example, "this is %s where a program with its arguments is wanted", kindOf(raw))
	}
	words, f := listOf(text("/usr/local/bin/moved", func(s string) (string, *fault) {
		if strings.ContainsRune(s, 0) {
			return "", wrong(example, "a zero byte cannot be passed to a program")
		}
		return s, nil
	}))(raw)
	if f == nil && len(words) > 0 && !filepath.IsAbs(words[0]) {
		f = wrong("write the whole path, since the search path of a service is not yours", "%q does not begin with /", words[0])
		f.Element = 1
	}
	return words, f
}

// clientInterfaces checks what a client with several interfaces cannot have.
func (c *checker) clientInterfaces(at string, r *Client) {
	if len(r.Interfaces) == 0 || c.failed[at+".interfaces"] {
		return
	}
	if r.Bind.IsValid() && !r.Bind.IsUnspecified() {
		c.fail(at+".bind", "a client with interfaces uses the address of each", "leave bind out, or interfaces")
	}
	for _, k := range []struct {
		key string
		on  bool
	}{
		{"local_discovery", r.LocalDiscovery},
		{"refresh_search", r.RefreshSearch},
		{"port_mapping", r.PortMapping != PortMappingNone},
	} {
		if k.on && !c.failed[at+"."+k.key] {
			c.fail(at+"."+k.key, "a client with interfaces does not have this", "leave it out, or interfaces")
		}
	}
	for i, name := range r.Interfaces {
		path := fmt.Sprintf("%s.interfaces[%d]", at, i)
		if slices.Contains(r.Interfaces[:i], name) {
			c.fail(path, fmt.Sprintf("%s is listed twice", name), "name each interface once")
		}
		if name == r.Interface {
			c.fail(path, name+" is the tunnel itself", "name interfaces that have IPv4")
		}
	}
}

// orNever takes "0s" for never.
func orNever(parse parser[time.Duration]) parser[time.Duration] {
	return func(raw any) (time.Duration, *fault) {
		if raw == "0s" {
			return 0, nil
		}
		d, f := parse(raw)
		if f != nil {
			f.Remedy += `, or "0s" for never`
		}
		return d, f
	}
}
