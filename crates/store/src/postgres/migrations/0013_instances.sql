-- The newest schema that the program of an instance knows; 0 for programs that do not say it.
ALTER TABLE instances ADD COLUMN knows bigint NOT NULL DEFAULT 0;
