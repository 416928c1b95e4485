// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
)

// standardSocket is where isthmus listens if no one says otherwise; tests bend it.
var standardSocket = config.Default().Control.Socket

// ownSocket is where a role in the foreground listens beside another isthmus, which has the
// standard socket. Network namespaces do not part these.
func ownSocket(role string) string {
	return filepath.Join(filepath.Dir(standardSocket), role+".sock")
}

// stepAside gives a configuration of flags the role's own socket if another isthmus has the
// standard one, and reports whether it did.
func stepAside(settings *config.Config) bool {
	if settings.Control.Socket != standardSocket || !control.Alive(standardSocket) {
		return false
	}
	settings.Control.Socket = ownSocket(settings.Instances[0].Section.Name)
	return true
}

// socket is that of the isthmus to ask: the one that is named, or else the usual one; or the
// role's own, where somebody listens there and the usual one has no instance of the role.
func (a asker) socket(to role.To) (string, error) {
	flag := SocketFlag{to.Connection}
	path, err := flag.path()
	if own := ownSocket(a.words[0]); !flag.named() && control.Alive(own) && (err != nil || !a.runsAt(path)) {
		return own, nil
	}
	return path, err
}

// runsAt reports whether the isthmus behind a socket has an instance of the command's role.
func (a asker) runsAt(path string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	status, err := control.NewClient(path).Status(ctx)
	return err == nil && slices.ContainsFunc(status.Instances, func(i control.Instance) bool { return i.Role == a.words[0] })
}

// Running implements [role.Asker].
func (a asker) Running(to role.To) (bool, error) {
	path, err := a.socket(to)
	switch flag := (SocketFlag{to.Connection}); {
	case err != nil && flag.named():
		return false, err
	case err != nil:
		return false, nil // the usual configuration lets no one ask
	case a.runsAt(path):
		return true, nil
	case flag.named() && control.Alive(path):
		return false, fmt.Errorf("the isthmus that listens on %s has no %s: name another socket (--socket PATH), or none", path, a.words[0])
	}
	return false, nil
}
