package link

import (
	"errors"
	"fmt"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/frame"
)

// maxText bounds what init says in words.
const maxText = 4 << 10

// exit checks init's report and puts it into the engine's form.
func (s *session) exit(f frame.Frame) (engine.Exit, error) {
	var m frame.ExitMessage
	if err := f.Decode(&m); err != nil {
		return engine.Exit{}, err
	}
	if err := checkExit(m, s.started); err != nil {
		return engine.Exit{}, fmt.Errorf("exit report: %w", err)
	}
	s.link.oom = m.OOMKills
	return engine.Exit{Code: m.Code, Signal: m.Signal, OOMKilled: m.OOMKills > 0, StartError: m.StartError}, nil
}

func checkExit(m frame.ExitMessage, started bool) error {
	switch {
	case m.OOMKills < frame.OOMUnknown:
		return fmt.Errorf("%d processes killed for memory", m.OOMKills)
	case m.StartError != "" || m.StartKind != "":
		return checkStartError(m, started)
	case !started:
		return errors.New("of a script that was not started")
	case m.Signal == "" && (m.Code < 0 || m.Code > 255):
		return fmt.Errorf("exit code %d", m.Code)
	case m.Signal != "" && (m.Code != -1 || !frame.KnownSignal(m.Signal)):
		return fmt.Errorf("exit code %d with signal %.40q", m.Code, m.Signal)
	}
	return nil
}

func checkStartError(m frame.ExitMessage, started bool) error {
	switch {
	case started:
		return errors.New("start error of a script that was started")
	case m.Code != -1 || m.Signal != "":
		return fmt.Errorf("start error with exit code %d and signal %.40q", m.Code, m.Signal)
	case m.StartError == "" || len(m.StartError) > maxText:
		return fmt.Errorf("start error of %d bytes", len(m.StartError))
	}
	switch m.StartKind {
	case frame.StartNotFound, frame.StartNotExecutable, frame.StartBadCwd, frame.StartTooLarge, frame.StartOther:
		return nil
	}
	return fmt.Errorf("start error of kind %.40q", m.StartKind)
}
