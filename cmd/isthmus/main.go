// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Command isthmus joins IPv4 and IPv6 networks. One program holds all roles and
// the lab that shows them at work; each command is one file here.
//
// The exit status is 0 for success, 1 for a failure, and 2 for a command line or
// configuration that has to be corrected first.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/internal/role"
)

// Exit statuses.
const (
	exitFailed = 1 // the work could not be done
	exitUsage  = 2 // the command line or the configuration is wrong
)

// StartCLI is the command line of who starts the program, or looks before whether it would: to make a model of
// all commands takes a third of the time in which a client has its address.
type StartCLI struct {
	Run   RunCmd   `cmd:"" help:"Run what a configuration names."`
	Check CheckCmd `cmd:"" help:"Check a configuration, and whether this machine can run it. Changes nothing."`
}

// CLI is the command line.
type CLI struct {
	StartCLI
	Init    InitCmd    `cmd:"" help:"Print a small configuration to start from."`
	Lab     LabCmd     `cmd:"" help:"See the roles at work in a network made of namespaces."`
	SIP     SIPCmd     `cmd:"" name:"sip" help:"SIP: telephone in the foreground."`
	Status  StatusCmd  `cmd:"" help:"Show what a running isthmus is doing."`
	Trace   TraceCmd   `cmd:"" help:"Show packets of a running isthmus with what became of them."`
	Reload  ReloadCmd  `cmd:"" help:"Have a running isthmus read its configuration again."`
	Drain   DrainCmd   `cmd:"" help:"Withdraw announced prefixes, and serve on."`
	Undrain UndrainCmd `cmd:"" help:"Let drained prefixes be announced again."`
	Clean   CleanCmd   `cmd:"" help:"Remove what an isthmus that did not come back has left behind."`
	Version VersionCmd `cmd:"" help:"Show version, compiler and kernel."`
}

// streams are where commands write: results to out, all else to err.
type streams struct{ out, err io.Writer }

// main leaves the work to another goroutine: its own has the first thread for good, see package port, and
// whoever is bound to a thread is slower to wake.
func main() {
	status := make(chan int)
	go func() { status <- execute(os.Args[1:], streams{os.Stdout, os.Stderr}) }()
	os.Exit(<-status)
}

// leave is the panic by which kong ends the program from inside, as for --help.
type leave int

// execute runs one command line and returns the exit status.
func execute(args []string, to streams) (status int) {
	defer func() {
		if reason := recover(); reason != nil {
			code, ok := reason.(leave)
			if !ok {
				panic(reason)
			}
			status = int(code)
		}
	}()
	stop := func() {}
	defer func() { stop() }()
	untilEnd := func() (ctx context.Context) { // of commands that take one
		ctx, stop = untilSignal(context.Background(), endSignals()...)
		return ctx
	}
	cli, commands := any(new(CLI)), roleCommands()
	if len(args) > 0 && (args[0] == "run" || args[0] == "check") {
		cli, commands = new(StartCLI), nil
	}
	parser, err := kong.New(cli, append(commands,
		kong.Name("isthmus"),
		kong.Description("Joins IPv4 and IPv6 networks, in one program: "+strings.Join(roles.Names(), ", ")+".\n\n"+
			"Exit status: 0 for success, 1 for a failure, 2 for a command line or configuration that has to be corrected."),
		kong.Writers(to.out, to.err),
		kong.Exit(func(code int) { panic(leave(code)) }),
		kong.Vars{"examples": strings.Join(exampleNames(), ","), "config": config.DefaultPath, "control_variable": control.SocketVariable},
		kong.Bind(to, role.Foreground(func(text string) error { return foreground(text, to) }), role.Screen{Out: to.out, Err: to.err, Live: onTerminal(to.out)}),
		kong.BindTo(to.out, (*io.Writer)(nil)),
		kong.BindToProvider(untilEnd),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, Tree: true}),
	)...)
	if err != nil {
		panic(err) // the command line itself is ill-defined: a test finds that
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(to.err, "isthmus: %v (isthmus --help shows the commands)\n", err)
		return exitUsage
	}
	command.BindTo(asker{to, names(command.Selected())}, (*role.Asker)(nil))
	return report(command.Run(), to)
}

// quietError ends a command whose output has said everything already.
type quietError int

func (quietError) Error() string { return "" }

// report prints the error of a command and chooses the exit status.
func report(err error, to streams) int {
	var quiet quietError
	var usage role.UsageError
	var faults config.Errors
	switch {
	case err == nil:
		return 0
	case errors.As(err, &quiet):
		return int(quiet)
	case errors.Is(err, role.ErrReported):
		return exitFailed
	case errors.As(err, &faults):
		fmt.Fprintln(to.err, faults)
		noun := "faults"
		if len(faults) == 1 {
			noun = "fault"
		}
		fmt.Fprintf(to.err, "isthmus: the configuration has %d %s; nothing was changed\n", len(faults), noun)
		return exitUsage
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintf(to.err, "isthmus: %s\n", line)
	}
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}
