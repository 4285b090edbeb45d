"""One folder for each feature, whole. `evalkit.hooks` lists them; nothing else imports from here."""
