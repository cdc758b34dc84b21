# Upper case: the text of the message, in capital letters. All that is printed is the answer.
tr '[:lower:]' '[:upper:]'
