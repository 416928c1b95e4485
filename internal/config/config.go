// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package config reads the one TOML file of Isthmus into checked values.
//
// Parsing is strict: an unknown key, a value of the wrong type or a value that
// could not work is an error that names the file, line, column and key and says
// what to write instead. All errors of a file are reported at once. What Parse
// returns needs no further check that could be made without looking at the
// machine.
//
// What a section holds is declared by its role, key by key; this package knows no role.
package config

import (
	"io/fs"
	"log/slog"
	"net/netip"
)

// DefaultPath is the configuration that isthmus reads when none is named.
const DefaultPath = "/etc/isthmus/isthmus.toml"

// Config is a whole configuration file. Instance names are unique over all
// roles.
type Config struct {
	// Instances are those of the sections that were declared to [Parse].
	Instances []Instance
	// Announce concerns instances with announce = true.
	Announce Announce
	Control  Control
	Metrics  Metrics
	Log      Log
}

// Control is the socket of `isthmus status` and `isthmus reload`.
type Control struct {
	// Socket is the path of the Unix socket; empty is none.
	Socket string
	// Mode is the permission bits of the socket.
	Mode fs.FileMode
	// Group owns the socket; empty is the group of the process.
	Group string
}

// Metrics is the Prometheus endpoint.
type Metrics struct {
	// Listen is the TCP address of the endpoint. Not valid: no endpoint.
	Listen netip.AddrPort
}

// Format is the form of log lines.
type Format string

// Forms of log lines.
const (
	FormatText Format = "text"
	FormatJSON Format = "json"
)

// Log says what is logged and how.
type Log struct {
	Level  slog.Level
	Format Format
}

// Count is the number of instances of all roles.
func (c *Config) Count() int {
	return len(c.Instances)
}

func find[T any](list []T, match func(T) bool) (T, bool) {
	for _, item := range list {
		if match(item) {
			return item, true
		}
	}
	var none T
	return none, false
}
