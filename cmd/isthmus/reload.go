// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/daemon"
	"github.com/isthmus-net/isthmus/internal/role"
)

// askTimeout bounds the wait for a running isthmus.
const askTimeout = 10 * time.Second

// SocketFlag finds the control socket of a running isthmus.
type SocketFlag struct{ role.Connection }

// client asks the daemon behind the socket.
func (f SocketFlag) client() (*control.Client, error) {
	path, err := f.path()
	if err != nil {
		return nil, err
	}
	return control.NewClient(path), nil
}

// path is that of the socket that was named: by --socket, by the file of -c, or by
// the environment, in this order; else by the usual configuration. Where that is
// faulty or may not be read, the usual socket is tried: whoever may connect may ask.
func (f SocketFlag) path() (string, error) {
	if f.Socket != "" {
		return f.Socket, nil
	}
	if named := os.Getenv(control.SocketVariable); named != "" && f.Config == nil {
		return named, nil
	}
	return f.fromConfig()
}

// named reports whether the socket is not the one of the usual configuration.
func (f SocketFlag) named() bool {
	return f.Socket != "" || f.Config != nil || os.Getenv(control.SocketVariable) != ""
}

func (f SocketFlag) fromConfig() (string, error) {
	of := ConfigFlag{f.Config}
	settings, err := of.load()
	switch {
	case err != nil && f.Config == nil:
		return standardSocket, nil
	case err != nil:
		return "", err
	case settings.Control.Socket == "":
		return "", fmt.Errorf("the configuration %s switches the control socket off ([control] socket), so a running isthmus cannot be asked", of.file())
	}
	return settings.Control.Socket, nil
}

// reloadTimeout bounds the wait for a reload, which may read files of many subscribers.
const reloadTimeout = 2 * time.Minute

// ReloadCmd has the daemon read its configuration again.
type ReloadCmd struct {
	SocketFlag
	JSON bool `help:"Print JSON."`
}

// Run prints what needs a restart.
func (c *ReloadCmd) Run(to streams) error {
	asked, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), reloadTimeout)
	defer cancel()
	reloaded, err := asked.Reload(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(to.out).Encode(reloaded)
	}
	fmt.Fprintln(to.out, "reloaded")
	for _, pending := range reloaded.NeedsRestart {
		fmt.Fprintf(to.out, "takes effect at the next start: %s\n", daemon.Describe(pending))
	}
	return nil
}
