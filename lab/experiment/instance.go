// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/lab"
)

// instance is an Isthmus on a node, run as a user would run it. Its configuration and its
// control socket lie in a folder, under a name.
type instance struct {
	node              *lab.Node
	binary, dir, name string
}

func (i instance) file() string   { return filepath.Join(i.dir, i.name+".toml") }
func (i instance) socket() string { return filepath.Join(i.dir, i.name+".sock") }

// configure writes a configuration with these sections, which keep their state in the folder, and
// has the node's shells ask this Isthmus.
func (i instance) configure(sections string) error {
	text := fmt.Appendf(nil, "[control]\nsocket = %q\n\n%s", i.socket(), i.keeping(sections))
	if err := os.WriteFile(i.file(), text, 0o644); err != nil {
		return fmt.Errorf("the configuration of %s cannot be written: %w", i.name, err)
	}
	return i.node.SetControl(i.socket())
}

// launch starts a process, which logs under that name, and does not wait for its service.
func (i instance) launch(ctx context.Context, log string) (*lab.Proc, error) {
	return i.node.Start(ctx, lab.Process{
		Name: log, Path: i.binary, Args: []string{"run", "-c", i.file()},
		Env: []string{"STATE_DIRECTORY=" + i.dir}, // what is in no state_file is not left outside either
	})
}

// run configures and launches.
func (i instance) run(ctx context.Context, sections string) (*lab.Proc, error) {
	if err := i.configure(sections); err != nil {
		return nil, err
	}
	return i.launch(ctx, "isthmus")
}

// status is what the one instance of the process says of itself.
func (i instance) status(ctx context.Context) (s control.Instance, err error) {
	status, err := control.NewClient(i.socket()).Status(ctx)
	if err == nil && len(status.Instances) != 1 {
		err = errors.New("one instance is not in its status")
	}
	if err != nil {
		return s, fmt.Errorf("%s does not tell its state: %w", i.name, err)
	}
	return status.Instances[0], nil
}

// values are its counters and gauges.
func (i instance) values(ctx context.Context) (map[string]float64, error) {
	s, err := i.status(ctx)
	return s.Values, err
}

// state reads what it says of its role.
func (i instance) state(ctx context.Context, into any) error {
	s, err := i.status(ctx)
	if err == nil {
		err = json.Unmarshal(s.State, into)
	}
	return err
}

// ask asks the one instance of a role in the process.
func (i instance) ask(ctx context.Context, role, what string, arguments, into any) error {
	b, err := json.Marshal(arguments)
	if err != nil {
		return err
	}
	return control.NewClient(i.socket()).Ask(ctx, control.Question{Role: role, What: what, Arguments: b}, into)
}

// order has it do something.
func (i instance) order(ctx context.Context, role, what string, arguments, into any) error {
	b, err := json.Marshal(arguments)
	if err != nil {
		return err
	}
	return control.NewClient(i.socket()).Order(ctx, control.Question{Role: role, What: what, Arguments: b}, into)
}
