// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/internal/role"
)

// commands are the command line of the SGSN.
type commands struct {
	Attach     Attach                          `cmd:"" help:"Open a PDP context and be its terminal, until SIGINT or SIGTERM; where an SGSN runs already, by that."`
	Contexts   role.Ask[struct{}, Contexts]    `cmd:"" help:"List the PDP contexts."`
	Secondary  role.Order[Linked, Done]        `cmd:"" help:"Open a secondary PDP context: certain packets of one that is open go by it, with a quality of their own."`
	Detach     role.Order[Detached, Done]      `cmd:"" help:"Close a PDP context, a primary one with its secondary ones."`
	Undelegate role.Order[Undelegated, Done]   `cmd:"" help:"Give back the prefix that --delegate has asked for."`
	Move       role.Order[MovedTo, Done]       `cmd:"" help:"Move a PDP context to another SGSN, to the other version of GTP, or to another GGSN."`
	Update     role.Order[Changed, Done]       `cmd:"" help:"Ask for another quality of service."`
	Misbehave  role.Order[Misbehaved, Misdone] `cmd:"" help:"Do what a good SGSN does not."`
	Load       LoadCommand                     `cmd:"" help:"Create and delete contexts, and measure how long the GGSN takes."`
	Stats      role.Stats                      `cmd:"" help:"Show what was sent, received and dropped."`
}

// Attached are the arguments of attach.
type Attached struct {
	Terminal `embed:""`
	Local    string `json:"local" placeholder:"ADDRESS" help:"Our GSN address, of which a second one is an order to the first; needed unless an SGSN runs."`
}

// Attach is `isthmus sgsn attach`.
type Attach struct {
	role.To
	Attached       `embed:""`
	Also           []string      `placeholder:"ADDRESS" help:"More addresses of ours, as SGSNs to which contexts move."`
	RestartCounter string        `default:"auto" placeholder:"N" help:"Restart counter: auto for one more than at the last start, clock for one of the time, 0 to 255, none to leave it out (${default})."`
	StateFile      string        `placeholder:"PATH" help:"File that knows the last restart counter (/var/lib/isthmus/sgsn.sgsn.state)."`
	T3             time.Duration `name:"t3" default:"5s" help:"How long a response is waited for (${default})."`
	N3             int           `name:"n3" default:"3" help:"How often a request is sent (${default})."`
	Echo           time.Duration `default:"0s" help:"How often the GGSN is asked whether it lives; 0s is never (${default})."`
	MaxContexts    int           `default:"1000" help:"Contexts at once (${default})."`
	Sequence       bool          `help:"Number the user packets of GTPv1."`
}

// Run is the terminal until a signal ends it, or gives the order to one that is running.
func (c *Attach) Run(run role.Foreground, by role.Asker) error {
	running, err := by.Running(c.To)
	if err != nil {
		return err
	}
	if running {
		if c.PasswordFile != "" {
			word, err := password(c.PasswordFile)
			if err != nil {
				return err
			}
			c.Password, c.PasswordFile = word, ""
		}
		var answer Done
		if err := by.Ask(c.To, true, c.Attached, &answer); err != nil {
			return err
		}
		return by.Show(c.To, answer)
	}
	if c.Local == "" {
		return role.UsageError{Err: errors.New("no SGSN is running, and --local names no address for one: write --local ADDRESS, or --socket PATH of the one that runs")}
	}
	c.Socket = cmp.Or(c.Socket, os.Getenv("ISTHMUS_CONTROL"))
	return run(c.configuration())
}

// configuration writes the flags as a file would have them, so that they are checked alike.
func (c *Attach) configuration() string {
	var text strings.Builder
	line := func(key string, value any) {
		if s, ok := value.(string); !ok || s != "" {
			fmt.Fprintf(&text, "%s = %#v\n", key, value)
		}
	}
	text.WriteString("[[sgsn]]\n")
	fmt.Fprintf(&text, "local = [%q", c.Local)
	for _, a := range c.Also {
		fmt.Fprintf(&text, ", %q", a)
	}
	text.WriteString("]\n")
	line("restart_counter", c.RestartCounter)
	line("state_file", c.StateFile)
	line("t3_response", c.T3.String())
	line("n3_requests", c.N3)
	line("echo_interval", c.Echo.String())
	line("max_contexts", c.MaxContexts)
	line("sequence_numbers", c.Sequence)
	line("ggsn", c.GGSN)
	line("apn", c.APN)
	line("imsi", c.IMSI)
	line("msisdn", c.MSISDN)
	line("type", c.Type)
	line("gtp", int(c.GTP))
	line("gtp_fallback", c.Fallback)
	line("nsapi", int(c.NSAPI))
	line("delegate", c.Delegate)
	line("pcscf", c.PCSCF)
	line("user", c.User)
	line("password", c.Password)
	line("password_file", c.PasswordFile)
	line("auth", c.Auth)
	line("netns", c.Netns)
	line("tun", c.TUN)
	line("link", c.Link)
	line("resolv_conf", c.ResolvConf)
	text.WriteString("[control]\n")
	line("socket", c.Socket)
	return text.String()
}

// LoadCommand is `isthmus sgsn load`.
type LoadCommand struct {
	role.To
	Loaded `embed:""`
}

// loadLook is how often the command looks whether the load has ended.
const loadLook = 200 * time.Millisecond

// Run starts the load, waits for its end and shows what was measured.
func (c *LoadCommand) Run(by role.Asker) error {
	var started Started
	if err := by.Ask(c.To, true, c.Loaded, &started); err != nil {
		return err
	}
	for {
		var load Load
		if err := by.Ask(c.To, false, struct{}{}, &load); err != nil {
			return err
		}
		if !load.Going {
			return by.Show(c.To, load)
		}
		time.Sleep(loadLook)
	}
}
